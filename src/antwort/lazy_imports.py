"""What is made when it is used first: a server that never needs it starts without it.

Modules, if they are heavy and seldom needed: a library with megabytes of machine code, say. Whoever uses one writes

    if TYPE_CHECKING:
        import heavy
    else:
        heavy = imported_on_use("heavy")

Regular expressions, if they are long and seldom needed: compiling one takes as long as importing a small module.
"""

import importlib
import re
from types import ModuleType
from typing import Any, AnyStr, Generic, cast

from typing_extensions import override


class _ModuleOnUse(ModuleType):
    """Stands for a module; each of its public names is looked up once. Tools ask any object for private ones."""

    @override
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module '{self.__name__}' is not imported for '{name}'", name=name, obj=self)
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)
        return found


def imported_on_use(name: str) -> ModuleType:
    """Return what stands for a module, and imports it when something of it is asked for."""
    return _ModuleOnUse(name)


class _PatternOnUse(Generic[AnyStr]):
    """Stands for a regular expression; each of its methods is looked up once."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def compiled_on_use(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what stands for a regular expression, and compiles it when something is asked of it."""
    return cast("re.Pattern[AnyStr]", _PatternOnUse(text, flags))
