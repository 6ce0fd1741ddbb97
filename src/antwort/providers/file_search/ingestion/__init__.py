"""From attached files to chunks: the queue, the desk of the server where workers fetch their work, and the workers."""
