"""Readers of files, a module for each kind; each has `read(data, filename, builder)`."""
