"""Modules that are imported when they are used first: a server that never needs them starts without them.

They are for what is heavy and seldom needed: a library with megabytes of machine code, say. Whoever uses one writes

    if TYPE_CHECKING:
        import heavy
    else:
        heavy = imported_on_use("heavy")
"""

import importlib
from types import ModuleType
from typing import Any

from typing_extensions import override


class _ModuleOnUse(ModuleType):
    """Stands for a module."""

    @override
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def imported_on_use(name: str) -> ModuleType:
    """Return what stands for a module, and imports it when something of it is asked for."""
    return _ModuleOnUse(name)
