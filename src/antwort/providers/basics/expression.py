"""Arithmetic written by a model, evaluated without running it.

The text is read with Python's own parser, and only numbers, operators and known functions are carried out. Work is
bounded by construction: the text is short, nesting is shallow, and an integer that would grow too large is refused
before it is computed. The outcome is a finite number or an `ExpressionError` that says what to write instead.
"""

import ast
import difflib
import math
import re
from collections.abc import Collection
from typing import NoReturn

from antwort.providers.basics.arithmetic import (
    CONSTANTS,
    FUNCTIONS,
    LARGEST_BITS,
    OPERATORS,
    ExpressionError,
    Function,
    Number,
    fits,
)

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
        tree = ast.parse(text, mode="eval")
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
_TOKEN = re.compile(
    r"""
    (?P<number> 0[xX][0-9a-fA-F_]+ | 0[bB][01_]+ | 0[oO][0-7_]+
              | (?: [0-9][0-9_]*\.?[0-9_]* | \.[0-9][0-9_]* ) (?: [eE][+-]?[0-9][0-9_]* )? )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | [-+*/%(), ]
    """,
    re.VERBOSE,
)
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
    text = "".join(" " if character.isspace() else character for character in expression).strip()
    if not text:
        _fail(f"is empty; {_ALLOWED}")
    return text.translate(_SPELLINGS)


def _check_tokens(text: str) -> None:
    """Let only characters and words through that an expression is made of, and catch what would be misread."""
    position, previous = 0, ""
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            character = text[position]
            _fail(f"has {character!r}: {_HINTS.get(character, f'only {_ALLOWED}')}", position + 1)
        if token["name"] and previous:
            _fail(f"has '{previous}{token[0]}': write {previous} * {token[0]} to multiply", position + 1)
        if re.fullmatch(r"0[0-9_]+", token[0]):
            _fail(
                f"has '{token[0]}': write numbers without leading zeros and without thousands separators", position + 1
            )
        position, previous = token.end(), token["number"] or ""
    if re.search(r"[0-9],[0-9]{3}(?![0-9])", text) and ", " in text:
        _fail("has commas with and without a space: write 1000 rather than 1,000, and a space after every other comma")


# --- evaluating ------------------------------------------------------------------------------------------------------


def _value(node: ast.expr, depth: int) -> Number:
    if depth == 0:
        _fail(f"is nested more than {DEEPEST_NESTING} levels deep; split it into several expressions")
    match node:
        case ast.BinOp():
            return _chain(node, depth - 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, depth - 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, depth - 1)
        case ast.Call():
            return _call(node, depth - 1)
        case _:
            return _leaf(node)


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
        value = _carried_out(function, symbol, (value, _value(step.right, depth)), step.right.col_offset + 1)
    return value


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
    return _carried_out(function, name, arguments, position)


def _leaf(node: ast.expr) -> Number:
    position = node.col_offset + 1
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if not fits(value):
                _fail(f"has a number that is {_TOO_LARGE}", position)
            return value
        case ast.Name(id=name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.Name(id=name) if name in FUNCTIONS:
            _fail(f"has '{name}' without its numbers: write {name}(…)", position)
        case ast.Name(id=name):
            _fail(f"has an unknown name '{name}'{_nearest(name, [*CONSTANTS, *FUNCTIONS])}", position)
        case ast.Tuple():
            _fail("has a comma outside a function: write 1000 rather than 1,000, and 1.5 rather than 1,5", position)
        case _:
            _fail(f"has something that is not arithmetic; only {_ALLOWED}", position)


def _carried_out(function: Function, name: str, arguments: tuple[Number, ...], position: int) -> Number:
    """Apply an operator or a function and make every way to fail a message."""
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
        if fits(result):
            return result
        problem = f"is {_TOO_LARGE}"
    shown = [_shown(argument) for argument in arguments]
    subject = f"{name}({', '.join(shown)})" if name in FUNCTIONS else f" {name} ".join(shown)
    _fail(f"cannot be computed: {subject} {problem}", position)


def _shown(value: Number) -> str:
    text = format_number(value)
    return text if len(text) <= 30 else f"{text[:12]}…{text[-6:]}"


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = _SYNONYMS.get(name.lower()) or (near[0] if near else None)
    return f": use {hint}" if hint else f"; known are {', '.join(sorted(known))}"
