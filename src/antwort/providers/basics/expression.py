"""Arithmetic written by a model, evaluated without running it.

The text is read with Python's own parser, and only numbers, operators and known functions are carried out. Work is
bounded by construction: the text is short, nesting is shallow, and an integer that would grow too large is refused
before it is computed. The outcome is a finite number or an `ExpressionError` that says what to write instead.
"""

import ast
import difflib
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeAlias

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

OPERATORS: Mapping[type[ast.operator], tuple[str, Function]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", _divide),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", _power),
}

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

_ALLOWED = "numbers, + - * / // % **, parentheses, pi, e, tau and functions such as sqrt(2) are allowed"
_TOO_LARGE = "too large (whole numbers may have 1,233 digits, decimals may reach 1.8e308)"


def evaluate(expression: str) -> Number:
    """Return the value of an arithmetic expression.

    Whole numbers stay exact: `12 / 4` and `sqrt(16)` are integers, `7 / 2` is a float. Division, remainder and rounding
    are Python's (`-7 // 2` is -4, `round(2.5)` is 2). Typographic signs for times,
    divided by and minus are read as operators. Positions in errors count from the first character that is not blank.
    """
    text = _normalised(expression)
    _check_tokens(text)
    try:
        # What `ast.parse` does, too, after some questions.
        tree: ast.Expression = compile(text, "expression", "eval", ast.PyCF_ONLY_AST)  # type: ignore[assignment]
    except SyntaxError as error:
        hint = "; % is the remainder, for 15 per cent write * 0.15" if "%" in text else ""
        _fail(f"cannot be read: {error.msg}{hint}", error.offset)
    except (RecursionError, MemoryError):
        _fail("is nested too deeply; split it into several expressions")
    return _value(tree.body, DEEPEST_NESTING)


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
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_LEADING_ZERO = r"0[0-9_]++ (?! \. | [eE][+-]?[0-9] )"
_WHOLE = r"[1-9][0-9]*+ (?! [.0-9A-Za-z_] )"
"""What most numbers are, and what is found soonest."""
_TOKENS = re.compile(
    rf"(?> {_WHOLE} | (?! {_LEADING_ZERO} ) {_NUMBER} (?! {_NAME} ) | {_NAME} | [-+*/%(), ]++ )*+", re.VERBOSE
)
"""All that an expression is made of, up to the first that it is not, or that would be misread."""
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


def _normalised(expression: str) -> str:
    """Replace common spellings character by character, so that positions stay right."""
    if len(expression) > LONGEST_TEXT:
        _fail(f"has {len(expression):,} characters, more than {LONGEST_TEXT:,}; split it into several expressions")
    text = expression.strip()
    if not text:
        _fail(f"is empty; {_ALLOWED}")
    if text.isascii() and text.isprintable():  # nearly always
        return text
    return _BLANK.sub(" ", text).translate(_SPELLINGS)


def _check_tokens(text: str) -> None:
    """Let only characters and words through that an expression is made of, and catch what would be misread."""
    position = _TOKENS.match(text).end()  # type: ignore[union-attr] # nothing at all is a match, too
    if position < len(text):
        _refuse_token(text, position)
    if ", " in text and _THOUSANDS.search(text):
        _fail("has commas with and without a space: write 1000 rather than 1,000, and a space after every other comma")


def _refuse_token(text: str, position: int) -> NoReturn:
    misread = re.compile(_MISREAD, re.VERBOSE).match(text, position)
    if misread is None:
        character = text[position]
        _fail(f"has {character!r}: {_HINTS.get(character, f'only {_ALLOWED}')}", position + 1)
    if (zero := misread["zero"]) is not None:
        _fail(f"has '{zero}': write numbers without leading zeros and without thousands separators", position + 1)
    number, name = misread["number"], misread["name"]
    _fail(f"has '{number}{name}': write {number} * {name} to multiply", misread.start("name") + 1)


# --- evaluating ------------------------------------------------------------------------------------------------------


def _value(node: ast.expr, depth: int) -> Number:
    if depth == 0:
        _fail(f"is nested more than {DEEPEST_NESTING} levels deep; split it into several expressions")
    return _KINDS.get(type(node), _refused)(node, depth - 1)


def _chain(node: ast.BinOp, depth: int) -> Number:
    """Carry out `a + b - c …` from the left in a loop, since a long sum is deep on its left side only."""
    steps: list[ast.BinOp] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp):
        steps.append(left)
        left = left.left
    value = _value(left, depth)
    for step in reversed(steps):
        symbol, function = OPERATORS[type(step.op)]  # others have characters that are refused
        value = _carried_out(function, symbol, (value, _value(step.right, depth)), step.right)
    return value


def _signed(node: ast.UnaryOp, depth: int) -> Number:
    if isinstance(node.op, ast.USub):
        return -_value(node.operand, depth)
    if isinstance(node.op, ast.UAdd):
        return _value(node.operand, depth)
    return _refused(node, depth)


def _call(node: ast.Call, depth: int) -> Number:
    position = node.func.col_offset + 1
    if not isinstance(node.func, ast.Name) or node.func.id in CONSTANTS:
        _fail("has a number right before '(': write * to multiply", position)
    name = node.func.id
    if name not in FUNCTIONS:
        _fail(f"has an unknown function '{name}'{_nearest(name, FUNCTIONS)}", position)
    if node.keywords:
        _fail(f"gives numbers to {name}(…) by name; give them by position", position)
    function, fewest, most = FUNCTIONS[name]
    if not fewest <= len(node.args) <= (most or LONGEST_TEXT):
        wanted = f"{fewest} or more" if most is None else f"{fewest}" if fewest == most else f"{fewest} or {most}"
        _fail(f"gives {len(node.args)} numbers to {name}(…), which takes {wanted}", position)
    arguments = tuple(_value(argument, depth) for argument in node.args)
    return _carried_out(function, name, arguments, node.func)


def _number(node: ast.Constant, depth: int) -> Number:
    value: object = node.value
    if type(value) is not int and type(value) is not float:
        _refused(node, depth)
    if abs(value) < _LIMIT:
        return value
    _fail(f"has a number that is {_TOO_LARGE}", node.col_offset + 1)


def _named(node: ast.Name, _depth: int) -> Number:
    name = node.id
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in FUNCTIONS:
        _fail(f"has '{name}' without its numbers: write {name}(…)", node.col_offset + 1)
    _fail(f"has an unknown name '{name}'{_nearest(name, [*CONSTANTS, *FUNCTIONS])}", node.col_offset + 1)


def _refused(node: ast.expr, _depth: int) -> NoReturn:
    if isinstance(node, ast.Tuple):
        problem = "has a comma outside a function: write 1000 rather than 1,000, and 1.5 rather than 1,5"
    else:
        problem = f"has something that is not arithmetic; only {_ALLOWED}"
    _fail(problem, node.col_offset + 1)


_KINDS: Mapping[type[ast.expr], Callable[[Any, int], Number]] = {
    ast.Constant: _number,
    ast.BinOp: _chain,
    ast.UnaryOp: _signed,
    ast.Call: _call,
    ast.Name: _named,
}
"""How the value of each kind of expression is found, with the levels that may be below it."""


def _carried_out(function: Function, name: str, arguments: tuple[Number, ...], place: ast.expr) -> Number:
    """Apply an operator or a function and make every way to fail a message, about a place in the expression."""
    try:
        result = function(*arguments)
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
    shown = [_shown(argument) for argument in arguments]
    subject = f"{name}({', '.join(shown)})" if name in FUNCTIONS else f" {name} ".join(shown)
    _fail(f"cannot be computed: {subject} {problem}", place.col_offset + 1)


def _shown(value: Number) -> str:
    text = format_number(value)
    return text if len(text) <= 30 else f"{text[:12]}…{text[-6:]}"


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = _SYNONYMS.get(name.lower()) or (near[0] if near else None)
    return f": use {hint}" if hint else f"; known are {', '.join(sorted(known))}"
