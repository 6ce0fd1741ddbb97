"""Agents as functions: starting others, waiting for them, asking a model once, giving back a result."""

from antwort.providers.sub_agents.provider import SubAgentsProvider

__all__ = ["SubAgentsProvider"]
