"""Where chunks are kept and found: Qdrant, the embedded database, PostgreSQL."""
