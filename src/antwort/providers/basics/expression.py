"""Arithmetic written by a model, evaluated without running it.

The text is read as Python reads it, but only numbers, operators and known functions are known here. Work is bounded by
construction: the text is short, nothing recurses, and an integer that would grow too large is refused before it is
computed. The outcome is a finite number or an `ExpressionError` that says what to write instead.
"""

import importlib
import math
import operator
import re
import string
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn, TypeAlias

# --- operators and functions, each bounded in time and memory ---------------------------------------------------------
# Operands fit into LARGEST_BITS, so only what grows faster than a product needs a check before it is computed. Such a
# check raises OverflowError if a lower bound of the result is too large; what passes is at most a few times larger.

Number: TypeAlias = int | float

LARGEST_BITS = 4096
_LIMIT = 2**LARGEST_BITS
"""A number is used further if its amount is below this: neither too large if whole, nor infinite, nor undefined."""
LARGEST_ROUNDING = 400
"""The places `round` goes to, before or after the point; no float has more."""


class ExpressionError(ValueError):
    """The expression has no value. The message tells the model what is wrong, where, and what to write instead."""


def _divide(dividend: Number, divisor: Number) -> Number:
    if isinstance(dividend, int) and isinstance(divisor, int) and divisor and dividend % divisor == 0:
        return dividend // divisor
    return dividend / divisor


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(base) > 1 and (base.bit_length() - 1) * exponent > LARGEST_BITS:
            raise OverflowError
    elif base < 0 and not float(exponent).is_integer():
        raise ValueError
    result: Number = base**exponent
    return result


def _whole(value: Number) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ExpressionError("needs whole numbers")
    return int(value)


def _natural(value: Number) -> int:
    if value < 0:
        raise ExpressionError("needs numbers that are not negative")
    return _whole(value)


def _permutations(n: Number, k: Number | None = None) -> int:
    n = _natural(n)
    k = n if k is None else _natural(k)
    if 5 < n >= k and k * (math.log2(n) - math.log2(math.e)) > LARGEST_BITS:  # n!/(n-k)! is at least (n/e)**k
        raise OverflowError
    return math.perm(n, k) if k <= n else 0


def _combinations(n: Number, k: Number) -> int:
    n, k = _natural(n), _natural(k)
    if k > n:
        return 0
    k = min(k, n - k)
    if k and k * (math.log2(n) - math.log2(k)) > LARGEST_BITS:  # n over k is at least (n/k)**k
        raise OverflowError
    return math.comb(n, k)


def _factorial(n: Number) -> int:
    return _permutations(n)


def _gcd(*values: Number) -> int:
    return math.gcd(*map(_whole, values))


def _lcm(*values: Number) -> int:
    result = 1
    for value in values:
        result = math.lcm(result, _whole(value))
        if result >= _LIMIT:
            raise OverflowError
    return result


def _sqrt(value: Number) -> Number:
    if isinstance(value, int) and value >= 0 and math.isqrt(value) ** 2 == value:
        return math.isqrt(value)
    return math.sqrt(value)


def _log(value: Number, base: Number = math.e) -> float:
    special = {2: math.log2, 10: math.log10, math.e: math.log}.get(base)
    return math.log(value, base) if special is None else special(value)


def _round(value: Number, digits: Number | None = None) -> Number:
    if digits is None:
        return round(value)
    digits = _whole(digits)
    if abs(digits) > LARGEST_ROUNDING:
        raise ExpressionError(f"rounds to more than {LARGEST_ROUNDING} digits")
    return round(value, digits)


def _min(*values: Number) -> Number:
    return min(values)


def _max(*values: Number) -> Number:
    return max(values)


def _sum(*values: Number) -> Number:
    return math.fsum(values) if any(isinstance(value, float) for value in values) else sum(values)


def _mean(*values: Number) -> Number:
    return _divide(_sum(*values), len(values))


Function: TypeAlias = Callable[..., Number]

OPERATORS: Mapping[str, tuple[int, int, Function]] = {
    "+": (1, 1, operator.add),
    "-": (1, 1, operator.sub),
    "*": (2, 2, operator.mul),
    "/": (2, 2, _divide),
    "//": (2, 2, operator.floordiv),
    "%": (2, 2, operator.mod),
    "**": (5, 4, _power),
}
"""Every operator with how tightly it binds the number to its left, and the one to its right.

Of two equals the left one is first; so `2 ** 3 ** 2` is read from the right, and others from the left.
"""
SIGNS: Mapping[str, Function] = {"+": operator.pos, "-": operator.neg}
_SIGN_BINDS = 3
"""Less tightly than a power, `-2 ** 2` is -4, and more tightly than a product."""

CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}

FUNCTIONS: Mapping[str, tuple[Function, int, int | None]] = {
    **{name: (getattr(math, name), 1, 1) for name in ("floor", "ceil", "exp", "log2", "log10", "degrees", "radians")},
    **{name: (getattr(math, name), 1, 1) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    "abs": (abs, 1, 1),
    "atan2": (math.atan2, 2, 2),
    "comb": (_combinations, 2, 2),
    "factorial": (_factorial, 1, 1),
    "gcd": (_gcd, 1, None),
    "hypot": (math.hypot, 1, None),
    "lcm": (_lcm, 1, None),
    "log": (_log, 1, 2),
    "max": (_max, 1, None),
    "mean": (_mean, 1, None),
    "min": (_min, 1, None),
    "perm": (_permutations, 1, 2),
    "round": (_round, 1, 2),
    "sqrt": (_sqrt, 1, 1),
    "sum": (_sum, 1, None),
}
"""Every function with the fewest and the most numbers it takes; None is any number."""


# --- expressions ------------------------------------------------------------------------------------------------------

LONGEST_TEXT = 1000
DEEPEST_NESTING = 50
"""Of operators and functions that wait for a number that is not complete yet."""
MOST_PARENTHESES = 200
"""That are open at once and not a function's."""

_ALLOWED = "numbers, + - * / // % **, parentheses, pi, e, tau and functions such as sqrt(2) are allowed"
_TOO_LARGE = "too large (whole numbers may have 1,233 digits, decimals may reach 1.8e308)"


def evaluate(expression: str) -> Number:
    """Return the value of an arithmetic expression.

    Whole numbers stay exact: `12 / 4` and `sqrt(16)` are integers, `7 / 2` is a float. Division, remainder and rounding
    are Python's (`-7 // 2` is -4, `round(2.5)` is 2). Typographic signs for times, divided by and minus are read as
    operators. Positions in errors count from the first character that is not blank.
    """
    if len(expression) > LONGEST_TEXT:
        _fail(f"has {len(expression):,} characters, more than {LONGEST_TEXT:,}; split it into several expressions")
    text = expression.strip()
    parts: list[str] = _PART.findall(text)
    if "".join(parts).replace(" ", "") != text.replace(" ", ""):  # there is something else
        text = _respelled(text)
        parts = _PART.findall(text)
    if ", " in text and _THOUSANDS.search(text):
        _fail("has commas with and without a space: write 1000 rather than 1,000, and a space after every other comma")
    try:
        return _value(parts)
    except _PartError as error:
        hint = "; % is the remainder, for 15 per cent write * 0.15" if parts[: error.index][-1:] == ["%"] else ""
        starts = [*(part.start() for part in _PART.finditer(text)), len(text)]
        _fail(f"{error}{hint}", starts[error.index] + 1)


def format_number(value: Number) -> str:
    """Return a number as text for a reader.

    Integers are written in full. Floats have up to 15 significant digits, which hides the error of binary fractions
    (`0.1 + 0.2` is 0.3), and no empty fraction (`84.0` is 84).
    """
    if isinstance(value, float):
        return f"{value + 0.0:.15g}"  # adding zero turns -0.0 into 0.0
    if value.bit_length() <= 2 * LARGEST_BITS:
        return str(value)
    # Python does not print integers of more than 4,300 digits.
    exponent, fraction = divmod(math.log10(abs(value)), 1)
    return f"{'-' if value < 0 else ''}{10**fraction:.6g}e+{exponent:.0f}"


# --- reading ---------------------------------------------------------------------------------------------------------

_SPELLINGS = str.maketrans("×✕∗⋅·÷∕−–", "*****//--")  # noqa: RUF001 — as people and models write them
_NUMBER = r"""(?> 0[xX][0-9a-fA-F_]+ | 0[bB][01_]+ | 0[oO][0-7_]+
                | (?: [0-9][0-9_]*\.?[0-9_]* | \.[0-9][0-9_]* ) (?: [eE][+-]?[0-9][0-9_]* )? )"""
_LETTERS = frozenset(string.ascii_letters + "_")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_LEADING_ZERO = r"0[0-9_]++ (?! \. | [eE][+-]?[0-9] )"
_WHOLE = r"[1-9][0-9]*+ (?! [.0-9A-Za-z_] )"
"""What most numbers are, and what is found soonest."""
_PART = re.compile(
    rf"""{_WHOLE} | [-+%(),] | \*\*? | //? | {_NAME} (?: [ ]*+ \( )?
       | (?! {_LEADING_ZERO} ) {_NUMBER} (?! {_NAME} )""",
    re.VERBOSE,
)
"""What an expression is made of. A function and its parenthesis are one."""
_PARTS = rf"(?> {_PART.pattern} | [ ] )*+"
"""All up to the first that is none, or that would be misread."""
_MISREAD = rf"(?P<zero> {_LEADING_ZERO} ) | (?P<number> {_NUMBER} ) (?P<name> {_NAME} )"
"""Compiled for the first expression that has one: it takes as long as to import a module."""
_BLANK = re.compile(r"[^\S ]")
_THOUSANDS = re.compile(r"[0-9],[0-9]{3}(?![0-9])")
_HINTS = {
    "^": "use ** for powers",
    "=": "give only the expression, without '=' or comparisons",
    "<": "comparisons are not supported",
    ">": "comparisons are not supported",
    "!": "use factorial(n); comparisons are not supported",
    ".": "leave out prefixes: sqrt(2), not math.sqrt(2)",
    "√": "use sqrt(x)",
    "π": "write pi",
    "τ": "write tau",
    "²": "write ** 2",
    "³": "write ** 3",
    "°": "angles are in radians, use radians(x)",
    "[": "use parentheses, and give numbers to a function one by one: sum(1, 2, 3)",
    "{": "use parentheses",
    '"': "texts are not supported",
    "'": "texts are not supported",
} | dict.fromkeys("$€£¥", "leave out the currency sign")
_SYNONYMS = {
    "ln": "log(x)",
    "pow": "x ** y",
    "power": "x ** y",
    "mod": "x % y",
    "avg": "mean(x, y)",
    "average": "mean(x, y)",
    "int": "floor(x)",
    "arcsin": "asin(x)",
    "arccos": "acos(x)",
    "arctan": "atan(x)",
}


def _fail(problem: str, position: int | None = None) -> NoReturn:
    where = "" if position is None else f" at position {position}"
    raise ExpressionError(f"the expression{where} {problem}") from None


def _respelled(text: str) -> str:
    """Replace common spellings character by character, so that positions stay right; refuse what is none."""
    text = _BLANK.sub(" ", text).translate(_SPELLINGS)
    position = re.compile(_PARTS, re.VERBOSE).match(text).end()  # type: ignore[union-attr] # nothing is a match, too
    if position < len(text):
        _refuse(text, position)
    return text


def _refuse(text: str, position: int) -> NoReturn:
    """Say what cannot be part of an expression, or would be misread."""
    misread = re.compile(_MISREAD, re.VERBOSE).match(text, position)
    if misread is None:
        character = text[position]
        _fail(f"has {character!r}: {_HINTS.get(character, f'only {_ALLOWED}')}", position + 1)
    if (zero := misread["zero"]) is not None:
        _fail(f"has '{zero}': write numbers without leading zeros and without thousands separators", position + 1)
    number, name = misread["number"], misread["name"]
    _fail(f"has '{number}{name}': write {number} * {name} to multiply", misread.start("name") + 1)


# --- evaluating ------------------------------------------------------------------------------------------------------

# Everything is computed while it is read from left to right: an operator is carried out once what follows binds less
# tightly. Until then it waits, as do signs and parentheses, on a list: nothing recurses.

_Waiting: TypeAlias = tuple[int, Function, str, int, list[Number]]
"""What waits for a number: how tightly it binds it, what it computes, its name and index, the numbers it has so far."""
_GROUP, _CALL, _LOOSEST = -1, 0, 1
"""How tightly a parenthesis binds what is in it, and that of a function; every operator binds more tightly."""


class _PartError(Exception):
    """What is wrong with the part that has an index."""

    def __init__(self, problem: str, index: int) -> None:
        super().__init__(problem)
        self.index = index


def _value(parts: list[str]) -> Number:
    waiting: list[_Waiting] = []
    value: Number | None = None  # of what was read last; None where a number has to follow
    for index, part in enumerate(parts):
        if value is None:
            value = int(part) if part.isdigit() else _begun(part, index, waiting)
        elif part in OPERATORS:
            left, right, function = OPERATORS[part]
            waiting.append((right, function, part, index, [_settled(value, left, waiting) if waiting else value]))
            value = None
        else:
            value = _ended(value, part, index, waiting)
    if value is None:
        if not parts:
            _fail(f"is empty; {_ALLOWED}")
        raise _PartError("cannot be read: a number is missing before the end", len(parts))
    value = _settled(value, _LOOSEST, waiting)
    if waiting:
        _, _, name, index, _ = waiting[-1]
        raise _PartError(f"cannot be read: '{name}(' was never closed", index)
    return value


def _begun(part: str, index: int, waiting: list[_Waiting]) -> Number | None:
    """Return the number that a part is; None if one has to follow."""
    if part in SIGNS:
        waiting.append((_SIGN_BINDS, SIGNS[part], part, index, []))
    elif part == "(":
        waiting.append((_GROUP, operator.pos, "", index, []))
    elif part[-1] == "(":
        name = part[:-1].rstrip()
        waiting.append((_CALL, _function(name, index), name, index, []))
    elif part == ")" and _in_call(waiting):  # without numbers, or after a comma
        return _closed(waiting)
    elif part in OPERATORS or part in {",", ")"}:
        raise _PartError(f"cannot be read: a number is missing before '{part}'", index)
    else:
        return _named(part, index) if part[0] in _LETTERS else _number(part, index)
    return None


def _ended(value: Number, part: str, index: int, waiting: list[_Waiting]) -> Number | None:
    """Return the number that ends with a part; None if another has to follow."""
    if part == "(":
        raise _PartError("has a number right before '(': write * to multiply", index - 1)
    if part not in {",", ")"}:
        if part[0] in _LETTERS and part[-1] != "(":
            _named(part, index)
        raise _PartError(f"cannot be read: an operator such as * is missing before '{part}'", index)
    value = _settled(value, _LOOSEST, waiting)
    if part == "," and not _in_call(waiting):
        problem = "has a comma outside a function: write 1000 rather than 1,000, and 1.5 rather than 1,5"
        raise _PartError(problem, index)
    if not waiting:
        raise _PartError("cannot be read: ')' was never opened", index)
    waiting[-1][-1].append(value)
    return None if part == "," else _closed(waiting)


def _settled(value: Number, binds: int, waiting: list[_Waiting]) -> Number:
    """Carry out what binds a number at least as tightly as what follows it."""
    if len(waiting) >= DEEPEST_NESTING:
        _check_nesting(waiting)
    while waiting and waiting[-1][0] >= binds:
        _, function, name, index, numbers = waiting.pop()
        numbers.append(value)
        value = _carried_out(function, name, index, numbers)
    return value


def _check_nesting(waiting: list[_Waiting]) -> None:
    groups = [one[0] for one in waiting].count(_GROUP)
    if groups > MOST_PARENTHESES:
        _fail(f"has more than {MOST_PARENTHESES} parentheses in one another; split it into several expressions")
    if len(waiting) - groups >= DEEPEST_NESTING:
        _fail(f"is nested more than {DEEPEST_NESTING} levels deep; split it into several expressions")


def _in_call(waiting: list[_Waiting]) -> bool:
    return bool(waiting) and waiting[-1][0] == _CALL


def _closed(waiting: list[_Waiting]) -> Number:
    """Return the value of what is in parentheses, after the last of its numbers."""
    kind, function, name, index, numbers = waiting.pop()
    if kind == _GROUP:
        return numbers[0]
    _, fewest, most = FUNCTIONS[name]
    if not fewest <= len(numbers) <= (most or LONGEST_TEXT):
        wanted = f"{fewest} or more" if most is None else f"{fewest}" if fewest == most else f"{fewest} or {most}"
        raise _PartError(f"gives {len(numbers)} numbers to {name}(…), which takes {wanted}", index)
    return _carried_out(function, name, index, numbers)


def _function(name: str, index: int) -> Function:
    if name in CONSTANTS:
        raise _PartError("has a number right before '(': write * to multiply", index)
    if name not in FUNCTIONS:
        raise _PartError(f"has an unknown function '{name}'{_nearest(name, FUNCTIONS)}", index)
    return FUNCTIONS[name][0]


def _named(name: str, index: int) -> Number:
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in FUNCTIONS:
        raise _PartError(f"has '{name}' without its numbers: write {name}(…)", index)
    raise _PartError(f"has an unknown name '{name}'{_nearest(name, [*CONSTANTS, *FUNCTIONS])}", index)


def _number(part: str, index: int) -> Number:
    try:
        value = _literal(part)
    except ValueError:
        raise _PartError(f"cannot be read: '{part}' is not a number", index) from None
    if abs(value) >= _LIMIT:
        raise _PartError(f"has a number that is {_TOO_LARGE}", index)
    return value


def _literal(text: str) -> Number:
    try:
        return int(text, 0)  # as Python reads it: with underscores, hexadecimal, octal or binary
    except ValueError:
        return float(text)


def _carried_out(function: Function, name: str, index: int, numbers: list[Number]) -> Number:
    """Apply an operator or a function and make every way to fail a message, about a place in the expression."""
    try:
        result = function(*numbers)
    except ZeroDivisionError:
        problem = "divides by zero"
    except OverflowError:
        problem = f"is {_TOO_LARGE}"
    except ExpressionError as error:
        problem = str(error)
    except ValueError:
        problem = "is not defined for real numbers"
    else:
        if abs(result) < _LIMIT:
            return result
        problem = f"is {_TOO_LARGE}"
    operands = [_written(number) for number in numbers]
    if name in OPERATORS:
        raise _PartError(f"cannot be computed: {f' {name} '.join(operands)} {problem}", index + 1)
    raise _PartError(f"cannot be computed: {name}({', '.join(operands)}) {problem}", index)


def _written(value: Number) -> str:
    text = format_number(value)
    return text if len(text) <= 30 else f"{text[:12]}…{text[-6:]}"


def _nearest(name: str, known: Collection[str]) -> str:
    difflib = importlib.import_module("difflib")  # few mistype a name
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = _SYNONYMS.get(name.lower()) or (near[0] if near else None)
    return f": use {hint}" if hint else f"; known are {', '.join(sorted(known))}"
