"""How work shares the event loop, threads and processes: slots, worker threads, tasks, work done once for many."""
