"""Chat completions: requests, answers, and those that are kept."""
