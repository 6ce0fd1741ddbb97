"""The store, written once for SQLite and PostgreSQL: what is asked of a database, and the threads that ask it."""
