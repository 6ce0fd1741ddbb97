"""Anthropic's Messages as another way to ask for a response: what is sent, what it means here, what is answered."""
