"""A Qdrant server."""
