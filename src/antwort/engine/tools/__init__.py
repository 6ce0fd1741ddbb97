"""What a model may call in a response: the tools of a request, and whose functions they are."""
