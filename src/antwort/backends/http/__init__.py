"""Model servers behind HTTP: one request for each turn, and an answer that is a stream or not."""
