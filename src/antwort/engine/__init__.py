"""The agentic loop. It names no provider, no HTTP and no database."""
