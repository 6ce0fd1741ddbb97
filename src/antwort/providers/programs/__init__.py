"""Programs: models write Python that calls the agent's functions, in an interpreter that can do nothing else."""

from antwort.providers.programs.provider import Programs

__all__ = ["Programs"]
