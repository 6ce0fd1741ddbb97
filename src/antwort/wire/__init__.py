"""What travels: requests, items, responses, events. No behaviour."""
