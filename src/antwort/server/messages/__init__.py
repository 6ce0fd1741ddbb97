"""Anthropic's Messages in front of the engine: requests and answers are translated, nothing else."""
