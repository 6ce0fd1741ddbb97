"""How work shares the event loop, threads and itself."""
