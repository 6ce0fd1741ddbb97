"""PostgreSQL with the extension `vector`."""
