"""The operators and functions of an expression, each bounded in time and memory.

Operands fit into `LARGEST_BITS`, so only what grows faster than a product needs a check before it is computed. Such a
check raises OverflowError if a lower bound of the result is too large; what passes is at most a few times larger.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

Number: TypeAlias = int | float

LARGEST_BITS = 4096
LARGEST_ROUNDING = 400
"""The places `round` goes to, before or after the point; no float has more."""


class ExpressionError(ValueError):
    """The expression has no value. The message tells the model what is wrong, where, and what to write instead."""


def fits(value: Number) -> bool:
    """Tell whether a result may be used further: finite and, if whole, not too large."""
    return value.bit_length() <= LARGEST_BITS if isinstance(value, int) else math.isfinite(value)


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
        if not fits(result):
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
