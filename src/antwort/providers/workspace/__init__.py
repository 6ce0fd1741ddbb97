"""Workspaces: commands in a sandbox, and files that stay, for a conversation or a run."""

from antwort.providers.workspace.provider import Workspace

__all__ = ["Workspace"]
