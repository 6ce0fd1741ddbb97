"""Texts that come from elsewhere: read without trust, and piece by piece."""
