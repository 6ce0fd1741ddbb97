"""How work shares the event loop and threads: slots, worker threads, tasks, and work done once for many."""
