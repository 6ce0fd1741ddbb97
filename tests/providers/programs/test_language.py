"""What models are told of the language is what the interpreter does: each line of the table is tried."""

import re
from collections.abc import AsyncIterator

import pytest
from tests.providers.programs.snippets import SNIPPETS

from antwort.providers.programs import Programs
from antwort.providers.programs.interpreter import ProgramInterpreter, monty
from antwort.providers.programs.language import (
    ASYNCIO,
    BUILTINS,
    DESCRIPTIONS,
    FULL,
    INSTEAD,
    LACKS,
    METHODS,
    MISSING,
    MODULES,
    Lack,
    advice,
    leaves_nothing,
    may_lack,
    needs_python,
)
from antwort.providers.programs.settings import ProgramsSettings

# Uses of methods that a class has; each calls the method in Python.
USES = {
    "__lt__": "A() < A()",
    "__le__": "A() <= A()",
    "__gt__": "A() > A()",
    "__ge__": "A() >= A()",
    "__len__": "len(A())",
    "__bool__": "not A()",
    "__format__": "f'{A():x}'",
    "__getattr__": "A().anything",
    "__iadd__": "a = A()\na += 1",
    "__reversed__": "reversed(A())",
}
WORKS = {
    "classes": "class A:\n    x = 1\n    def __init__(self, y):\n        self.y = y\nA(2).x + A(2).y",
    "arithmetic of classes": "class A:\n    def __add__(self, b):\n        return b\nA() + 1",
    "iteration of classes": "class A:\n    def __iter__(self):\n        return iter([1])\nlist(A())",
    "comparison of classes": "class A:\n    def __eq__(self, b):\n        return True\nA() == 1",
    "context managers": "class A:\n    def __enter__(self):\n        return 1\n    def __exit__(self, *e):\n"
    "        pass\nwith A() as a:\n    pass",
    "dataclasses": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\nA().x",
    "decorators of functions": "def d(f):\n    return f\n@d\ndef f():\n    return 1\nf()",
    "match": "match [1, 2]:\n    case [a, *b]:\n        a",
    "comprehensions": "{x: [y for y in 'ab'] for x in range(3) if x}",
    "generator expressions": "sum(x for x in [1, 2])",
    "await in comprehensions": "async def f(x):\n    return x\n[await f(x) for x in [1]]",
    "exceptions": "try:\n    1 / 0\nexcept (ZeroDivisionError, ValueError) as e:\n    str(e)\nfinally:\n    2",
    "formats": "f'{3.14159:>8.2f} {1000:,} {0.5:.1%}'",
    "closures": "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    return g\nf()()",
}


@pytest.fixture
async def interpreter() -> AsyncIterator[ProgramInterpreter]:
    found = ProgramInterpreter(ProgramsSettings(processes=1))
    try:
        yield found
    finally:
        await found.close()


async def error_of(interpreter: ProgramInterpreter, code: str) -> str:
    """Return what comes of a program, as `type: message`; empty if it does not fail."""
    async with interpreter.session("acme") as session:
        try:
            await session.feed_run(code)
        except monty().MontyError as error:
            return str(error.display("type-msg"))
    return ""


@pytest.mark.parametrize("lack", LACKS, ids=[lack.label[:30] for lack in LACKS])
async def test_what_is_said_to_lack_does_and_errors_say_what_to_use(
    interpreter: ProgramInterpreter, lack: Lack
) -> None:
    error = await error_of(interpreter, lack.probe)
    assert re.search(lack.error, error), error
    assert lack.instead in advice(error)
    assert may_lack(error)
    assert needs_python(lack.probe)
    assert lack.label in DESCRIPTIONS["monty"]


async def test_modules_that_are_promised_are_there_and_no_others_are_said_to_lack(
    interpreter: ProgramInterpreter,
) -> None:
    for module in MODULES:
        assert await error_of(interpreter, f"import {module}") == ""
        assert module in DESCRIPTIONS["monty"]
    for module, instead in INSTEAD.items():
        error = await error_of(interpreter, f"import {module}")
        assert error.startswith("ModuleNotFoundError"), module
        assert instead in advice(error)
        assert needs_python(f"import {module}")
        assert needs_python(f"import json\nfrom {module} import x")


async def test_names_that_are_said_to_be_missing_are(interpreter: ProgramInterpreter) -> None:
    for module, names in MISSING.items():
        for name in names:
            error = await error_of(interpreter, f"from {module} import {name}")
            assert error.startswith("ImportError"), f"{module}.{name}"
            assert name in advice(error)
            assert needs_python(f"import {module}\n{module}.{name}")
            assert needs_python(f"from {module} import x, {name}")
    for name in ASYNCIO:
        assert await error_of(interpreter, f"import asyncio\nasyncio.{name}") == ""
    for name in BUILTINS:
        assert (await error_of(interpreter, name)).startswith("NameError"), name


async def test_methods_of_classes_that_are_said_not_to_work_do_not(interpreter: ProgramInterpreter) -> None:
    assert set(USES) == set(METHODS)
    for method, use in USES.items():
        value = "'5'" if method == "__format__" else "5"
        made = f"made = []\nclass A:\n    def {method}(self, *a):\n        made.append(1)\n        return {value}\n"
        failed = await error_of(interpreter, made + use)
        assert failed or await error_of(interpreter, f"{made}{use}\nassert made"), method
        assert needs_python(made + use)


@pytest.mark.parametrize("what", WORKS)
async def test_what_is_not_said_to_lack_works(interpreter: ProgramInterpreter, what: str) -> None:
    assert await error_of(interpreter, WORKS[what]) == ""
    assert not needs_python(WORKS[what])


def test_programs_that_the_small_interpreter_runs_mostly_stay_there() -> None:
    plain = ["calls in a loop", "calls at once", "counters and groups", "dates", "itertools", "matching", "a table"]
    assert [name for name in plain if needs_python(SNIPPETS[name][0])] == []
    assert needs_python(f"{FULL}\n1 + 1")


def test_texts_made_to_be_slow_to_look_at_are_not() -> None:
    for part in ("\n", " ", ".sub(", "from re import ", "class A", "import a,", "asyncio.", "@", "\n\t", "a.b"):
        needs_python(part * 40_000)


@pytest.mark.parametrize("interpreter_name", ["monty", "sandbox", "auto"])
def test_models_read_what_the_interpreter_of_the_settings_can_do(interpreter_name: str) -> None:
    [spec] = Programs(ProgramsSettings.model_validate({"interpreter": interpreter_name})).tools()
    assert spec.description == DESCRIPTIONS[interpreter_name]
    assert ("subset" in spec.description) == (interpreter_name == "monty")


@pytest.mark.parametrize("code", ["1 + 1", " 2 ** 64\n", "max(len(w) for w in 'a b'.split() if w != 'c') > 1", "1 / 0"])
def test_an_expression_leaves_nothing(code: str) -> None:
    assert leaves_nothing(code)


@pytest.mark.parametrize(
    "code",
    [
        "x = 1",
        "x: int = 1",
        "abs >>= 1",
        "(x := 1)",
        "1; 2",
        "1\n2",
        "for x in range(3): pass",
        "def f(): return 1",
        "class A: pass",
        "import math",
        "from math import pi",
        "del variable",
        "setattr(asyncio, 'x', 1)",
        "Variable.size",
        "with a as b: pass",
        "exec('a' + chr(61) + '1')",
        "globals().setdefault('a', 1)",
        "1" * 1001,
    ],
)
def test_what_may_define_something_is_kept(code: str) -> None:
    assert not leaves_nothing(code)
