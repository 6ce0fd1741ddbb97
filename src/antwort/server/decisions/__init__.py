"""`/v1/decisions`: questions about an input, which a model answers as any other request."""
