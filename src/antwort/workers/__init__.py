"""Several processes as one server: who starts them, and what they say to each other."""
