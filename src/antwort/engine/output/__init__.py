"""What a response says: its items and events, as they are written."""
