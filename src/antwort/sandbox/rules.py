"""What the operator of a server says about its sandbox."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from antwort.errors import ConfigError
from antwort.sandbox.places import check_unseen, system_places

logger = logging.getLogger(__name__)


class SandboxRules(Struct, frozen=True):
    """Whose code runs in the sandbox, what it may see, and what has to be held there."""

    private: Mapping[str, Path] = {}
    """Files and folders that nobody in the sandbox may see, each by a name that the operator knows it by."""
    visible: Sequence[Path] = ()
    """Folders that everybody in the sandbox sees, beside those of the system."""
    several_tenants: bool = False
    """Whether the code is that of people who are strangers to each other."""
    allows_unbounded: bool = False
    """Whether that is all right where the kernel does not hold every limit."""
    disk_reserve: int = 0
    """Bytes of the disk that the server wants for itself."""
    processes: int = 1
    """How many processes the server has: each lets code take its share of the disk."""

    @property
    def needs_bounds(self) -> bool:
        """Whether nothing may be done that the kernel does not hold to its limits."""
        return self.several_tenants and not self.allows_unbounded

    def check_places(self, places: Sequence[Path] | None = None) -> None:
        """Refuse to show places, by default those that everybody sees, if something private lies there: ConfigError."""
        check_unseen(self.private, [*system_places(), *self.visible] if places is None else places)

    def tolerate(self, unheld: Sequence[str]) -> None:
        """Say what the kernel does not hold here; if one tenant could harm another by that, it is a ConfigError.

        Each is a clause that says what it is and how it could be held.
        """
        if not unheld:
            return
        if self.needs_bounds:
            raise ConfigError(
                f"this server has several tenants, and the kernel does not hold every limit of their code: "
                f"{'; '.join(unheld)}. Mend that, or accept it with `sandbox.unbounded: allow`",
                where="sandbox.unbounded",
            )
        logger.warning("sandbox: the kernel does not hold every limit of code here: %s", "; ".join(unheld))
