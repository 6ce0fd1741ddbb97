"""What the small interpreter understands of Python.

The prompt, the advice in errors and the choice of an interpreter are made from one table. Tests hold each line of it to
the interpreter, so that none says what is not so.
"""

import re
from typing import NamedTuple

FULL = "# full python"
"""What a program begins with that is to run in the sandbox, where both interpreters are there."""

MODULES = (
    "asyncio",
    "base64",
    "bisect",
    "collections",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "functools",
    "hashlib",
    "itertools",
    "json",
    "math",
    "random",
    "re",
    "time",
    "tomllib",
    "typing",
    "unicodedata",
)
"""Modules that there are."""

MISSING = {
    "collections": ("ChainMap", "OrderedDict", "UserDict"),
    "csv": ("Sniffer",),
    "dataclasses": ("asdict", "astuple", "fields", "make_dataclass", "replace"),
    "datetime": ("UTC",),
    "functools": ("cached_property", "cmp_to_key", "singledispatch", "total_ordering", "wraps"),
    "json": ("JSONDecoder", "JSONEncoder"),
    "re": ("VERBOSE", "subn"),
    "typing": ("Awaitable", "Coroutine", "NamedTuple", "NewType", "TypeAlias", "TypedDict", "cast", "overload"),
}
"""What is often used of them, and not there."""

ASYNCIO = ("gather", "run", "sleep")
"""All that there is of asyncio."""

INSTEAD = {
    "abc": "write plain classes",
    "collections.abc": "take the names from typing",
    "contextlib": "use try and finally",
    "enum": "use constants, or a dict",
    "fractions": "use decimal",
    "heapq": "keep a sorted list with bisect.insort, and pop(0)",
    "io": "csv.reader and csv.DictReader take a list of lines, text.splitlines()",
    "operator": "write a lambda",
    "statistics": "compute with sum, len and sorted",
    "string": "write the characters out",
    "textwrap": "split and join the text",
    "uuid": "use random.getrandbits",
}
"""What to use in the place of a module that is not there."""


class Lack(NamedTuple):
    """Something of Python that the interpreter does not have."""

    label: str
    """As the prompt calls it."""
    instead: str
    """What to do; errors say it."""
    probe: str
    """A program that needs it."""
    source: str
    """The pattern of programs that use it; some that do not have it too, which costs no more than the sandbox."""
    error: str
    """The pattern of what the interpreter says of it; empty where it says nothing, and does something else."""


BUILTINS = ("bytearray", "callable", "delattr", "dir", "globals", "input", "issubclass", "memoryview", "super", "vars")
METHODS = [
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__len__",
    "__bool__",
    "__format__",
    "__getattr__",
    "__iadd__",
    "__reversed__",
]
LACKS = (
    Lack(
        "inheritance, also of Exception, Enum, NamedTuple",
        "write plain classes and dataclasses that hold each other, and raise ValueError or RuntimeError",
        "class A:\n    pass\nclass B(A):\n    pass",
        r"^[ \t]*class\s+\w+\s*\(\s*\w",
        "class inheritance",
    ),
    Lack(
        "decorators of methods (property)",
        "write methods without them, and functions outside of the class",
        "class A:\n    @property\n    def x(self):\n        return 1",
        r"^[ \t]+@",
        "method decorators",
    ),
    Lack(
        "nested classes",
        "define the class at the top",
        "class A:\n    class B:\n        pass",
        r"^[ \t]+class\s",
        "class bodies containing anything other",
    ),
    Lack("yield", "build a list and return it", "def f():\n    yield 1", r"\byield\b", "yield expressions"),
    Lack(
        "async for",
        "await in an ordinary loop",
        "async def f():\n    async for x in y:\n        pass",
        r"\basync\s+for\b",
        "async for loops|async comprehensions",
    ),
    Lack(
        "async with",
        "await without it; calls wait for their turns by themselves",
        "async def f():\n    async with x:\n        pass",
        r"\basync\s+with\b",
        "async context managers",
    ),
    Lack("del", "use pop, or make a new one", "x = [1]\ndel x[0]", r"^[ \t]*del\s", "'del' statement"),
    Lack(
        "except*",
        "use except",
        "try:\n    pass\nexcept* ValueError:\n    pass",
        r"^[ \t]*except\s*\*",
        "exception groups",
    ),
    Lack("type aliases", "assign: X = int", "type X = int", r"^[ \t]*type\s+\w+\s*=", "type aliases"),
    Lack(
        "gather(return_exceptions=True)",
        "gather an async function of your own that has try and except around the call, and returns the error",
        "import asyncio\nasync def f():\n    return 1\nawait asyncio.gather(f(), return_exceptions=True)",
        r"\breturn_exceptions\b",
        r"gather\(\) does not yet support keyword",
    ),
    Lack(
        f"of asyncio anything but {', '.join(ASYNCIO)}",
        "start calls with asyncio.gather, which waits for all of them",
        "import asyncio\nasyncio.create_task",
        rf"\basyncio\.(?!(?:{'|'.join(ASYNCIO)})\b)\w|\bfrom\s+asyncio\b",
        "module 'asyncio' has no attribute|from 'asyncio'",
    ),
    Lack(
        "order, length and truth of your classes (__lt__, __len__ and the like)",
        "write a method with a name of its own, and call it; sort with a key",
        "class A:\n    def __len__(self):\n        return 3\nlen(A())",
        rf"\bdef\s+(?:{'|'.join(METHODS)}|__await__|__delattr__|__setattr__|__missing__)\b",
        r"not supported between instances of|has no len\(\)|is not reversible|for \+=",
    ),
    Lack(
        "functions in re.sub",
        "go through re.finditer, and join the parts",
        'import re\nre.sub("a", lambda m: "b", "a")',
        r"\.sub\([^\n]{0,300}\blambda\b",
        r"callable replacement",
    ),
    Lack(
        "attributes of exceptions",
        "use str(error)",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.__cause__",
        r"\.(?:pos|lineno|colno|__cause__|__context__|__traceback__|with_traceback|add_note)\b",
        r"Error' object has no attribute|exceptions can only be called with",
    ),
    Lack(
        "attributes of functions (__name__)",
        "keep names in a dict",
        "def f():\n    pass\nf.__name__",
        r"(?<!\))(?<!__class__)\.__(?:name|doc|dict|wrapped)__",
        r"'function' object has no attribute|has no attribute '__dict__'",
    ),
    Lack(
        "methods of types as functions (str.lower)",
        "write a lambda, as in key=lambda s: s.lower()",
        'sorted("bA", key=str.lower)',
        r"\b(?:str|int|bytes|float)\.[a-z]\w*",
        r"type object '\w+' has no attribute",
    ),
    Lack(
        "callable, dir, globals, super, vars and the like",
        "do without: what there is, is what you have defined",
        "callable(1)",
        rf"(?<![\w.])(?:{'|'.join(BUILTINS)})\s*\(",
        rf"name '(?:{'|'.join(BUILTINS)})' is not defined",
    ),
    Lack(
        "files (open)",
        "keep what is to stay with set_variable",
        "open('/tmp/x', 'w')",
        r"(?<![\w.])open\s*\(",
        "PermissionError: ",
    ),
)
"""All that is known to lack, but for modules and what is missing in those that there are."""

_MISSING_NAMES = "|".join(
    rf"\b{module}\.(?:{'|'.join(names)})\b|\bfrom\s+{module}\s+import\b[^\n]{{0,300}}\b(?:{'|'.join(names)})\b"
    for module, names in MISSING.items()
)
_SHORT = 1000
"""Characters of a program that may be but an expression."""
_LOOKED_AT = 100_000
"""Characters of a program that are looked at before it runs."""
_IMPORT = re.compile(r"^[ \t]*(?:import\s+([^\n#;]+)|from\s+([\w.]+)\s+import\b)", re.MULTILINE)
_NEEDS = re.compile("|".join(f"(?:{lack.source})" for lack in LACKS) + f"|{_MISSING_NAMES}", re.MULTILINE)
_MAY_DEFINE = re.compile(
    r"[\n\r;:\\]|(?<![=!<>])=(?!=)|[<>]{2}=|\b(?:import|from|del|globals?|locals|vars|eval|exec)\b|ariable|attr\b|__"
)
"""What stands in every program that leaves something: names of its own, or another state of those that there are."""
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '(\w+)'|module '(\w+)' has no attribute '(\w+)'")
_LACKING_ERRORS = re.compile(
    r"^(?:NotImplementedError|ModuleNotFoundError|ImportError|AttributeError|TypeError|NameError|SyntaxError|"
    r"PermissionError|RuntimeError: Internal error)"
)


def needs_python(code: str) -> bool:
    """Tell whether a program uses what the interpreter does not have, as far as its text tells."""
    code = code[:_LOOKED_AT]
    if code.lstrip().lower().startswith(FULL) or _NEEDS.search(code) is not None:
        return True
    for found in _IMPORT.finditer(code):
        names = found[2] or found[1]
        if any(name.split()[0] not in {*MODULES, "__future__"} for name in names.split(",") if name.split()):
            return True
    return False


def leaves_nothing(code: str) -> bool:
    """Tell whether a first program is nothing but one expression, so that there is nothing of it for the next one.

    It is looked at as a text: of some that leave nothing it is not told.
    """
    return len(code) <= _SHORT and _MAY_DEFINE.search(code.strip()) is None


def may_lack(error: str) -> bool:
    """Tell whether an error, as `type: message`, may be one that Python itself would not have."""
    return _LACKING_ERRORS.match(error) is not None


def advice(error: str) -> str:
    """Return what to do about an error, as `type: message`, that comes of what lacks; empty if it does not."""
    if (module := _NO_MODULE.search(error)) is not None:
        instead = INSTEAD.get(module[1], "")
        return f"Here are only the modules {', '.join(MODULES)}{instead and f'; {instead}'}."
    for lack in LACKS:
        if lack.error and re.search(lack.error, error):
            return f"Not understood here: {lack.label}. Instead, {lack.instead}."
    if (name := _NO_NAME.search(error)) is not None:
        return f"Not there: {name[1] or name[4]} of {name[2] or name[3]}. Write what you need of it yourself."
    return ""


CALLS = """\
Run a Python program that calls functions, for loops and many calls. You read what it prints, and the value of its \
last expression. Names stay for your next program.
Your functions are async functions of the same names: `r = await name(key=value)`, many at once with \
`await asyncio.gather(*[name(key=x) for x in xs])`. They return dicts, lists, numbers or text; one that fails raises \
RuntimeError; one that ends your work ends it with the program. A long result is a dict with "$ref": \
`v = await variable(it)`.
Variables: `v = await variable("key")`, `v.size`, `await v.read(offset, limit)` (bytes, as text), \
`await v.lines(first, count)`, `await v.grep(pattern, limit)`, `await v.load()` if small; \
`await set_variable(key, value)`, `await variables()`. Pass a variable to a function as it is."""

SUBSET = f"""\
It is a subset of Python, without files, network and packages. There are the usual parts of {", ".join(MODULES)}.
Not understood: {"; ".join(lack.label for lack in LACKS)}."""

WHOLE = """\
It is Python with its standard library, and top-level await. There is no network; files are there in /tmp only, and \
gone with the program. Of names, what cannot be copied (open files, generators) does not stay."""

EITHER = f"""\
{WHOLE} Plain programs run in a quicker interpreter, which lacks some of Python. If an error says that something is \
not understood, begin the program with the line `{FULL}`."""

DESCRIPTIONS = {
    "monty": f"{CALLS}\n{SUBSET}",
    "sandbox": f"{CALLS}\n{WHOLE}",
    "auto": f"{CALLS}\n{EITHER}",
}
"""What models are told of `run_program`, by the setting `interpreter`."""
