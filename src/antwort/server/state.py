"""Where in its life the server is."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["ServerState"]


@dataclass(slots=True)
class ServerState:
    """Shared between whoever starts and stops the app and the readiness probe."""

    phase: Literal["starting", "running", "stopping"] = "starting"
    model: str = ""
    """What answers requests, for everybody: names, never addresses."""

    @property
    def ready(self) -> bool:
        """Tell whether requests are taken."""
        return self.phase == "running"
