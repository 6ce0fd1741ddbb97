"""Chat completions: those that are kept, and those that the engine makes."""
