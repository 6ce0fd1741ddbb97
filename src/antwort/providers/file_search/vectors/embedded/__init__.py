"""The embedded database: a process of ours that owns a folder. Nothing is imported here: the process imports it."""
