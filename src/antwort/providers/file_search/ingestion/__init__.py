"""From attached files to chunks: the queue, the jobs that the server lends, and the workers that do them."""
