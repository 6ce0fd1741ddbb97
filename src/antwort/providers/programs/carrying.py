"""What the names of one interpreter are in the other: values are carried over, functions and classes are not."""

import datetime
import decimal
import importlib
from typing import Any

from antwort.provider import LargeWork
from antwort.providers.programs.interpreter import ProgramInterpreter, monty
from antwort.providers.programs.language import MODULES
from antwort.providers.programs.prelude import NAMES
from antwort.providers.programs.states import State

_DEEPEST = 50
# Run by the interpreter, in a session that is not kept: to take out what it cannot give ends it.
_ALL = f"""
import datetime as _datetime, decimal as _decimal
_all = [(key, value) for key, value in locals().items() if key not in ("_datetime", "_decimal")]
_kinds = (bool, int, float, str, bytes, _datetime.date, _datetime.datetime, _datetime.timedelta, _decimal.Decimal)

def _is_plain(value, depth):
    kind = type(value)
    if value is None or kind in _kinds:
        return True
    if depth > {_DEEPEST}:
        return False
    if kind is dict:
        return all([_is_plain(key, depth + 1) and _is_plain(part, depth + 1) for key, part in value.items()])
    return kind in (list, tuple, set, frozenset) and all([_is_plain(part, depth + 1) for part in value])

[
    [key for key, value in _all],
    [key for key, value in _all if type(value) is type(_datetime)],
    {{key: value for key, value in _all if _is_plain(value, 0)}},
]
"""
_PLAIN = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        decimal.Decimal,
    }
)


async def carried(interpreter: ProgramInterpreter, work: LargeWork, tenant: str, before: State) -> bytes:
    """Return the names of a session as a program in the sandbox takes them; those that cannot be, it knows as lost."""
    async with interpreter.session(tenant) as session:
        await session.load_session(before.session)
        try:
            names, modules, values = await session.feed_run(_ALL)
        except (
            monty().MontyError,
            TypeError,
            ValueError,
        ):  # there is no room, or it says something else
            return b""
    data = await work.run(_written, names, modules, values)
    return b"" if len(data) > interpreter.settings.max_snapshot else data


def _written(names: list[str], modules: list[str], values: dict[str, Any]) -> bytes:
    kept = {name: value for name, value in values.items() if name not in NAMES and _is_plain(value)}
    imports = {name: f"import {name}" for name in modules if name in MODULES}
    lost = {name for name in names if type(name) is str} - {*kept, *imports, *NAMES}
    pickle = importlib.import_module("pickle")  # few programs need the other interpreter
    data: bytes = pickle.dumps((imports, lost, pickle.dumps(kept)))
    return data


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Tell whether a value is the same everywhere, with all its parts."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if depth > _DEEPEST:
        return False
    if kind is dict:
        return all(_is_plain(key, depth + 1) and _is_plain(part, depth + 1) for key, part in value.items())
    return kind in {list, tuple, set, frozenset} and all(_is_plain(part, depth + 1) for part in value)
