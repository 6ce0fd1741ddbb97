import ast
import inspect
import math
import operator
import os
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antwort.providers.basics.expression import (
    CONSTANTS,
    FUNCTIONS,
    LARGEST_BITS,
    LONGEST_TEXT,
    OPERATORS,
    ExpressionError,
    Number,
    evaluate,
    format_number,
)

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("12*7", 84),
        ("  1 +\n\t2 ", 3),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("-2 ** 2", -4),
        ("2 ** 3 ** 2", 512),
        ("2 ** -1", 0.5),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("7.5 // 2", 3.0),
        ("+-+5", -5),
        ("1_000 + .5 + 5. + 1e3", 2005.5),
        ("0x1F + 0b11", 34),
        ("10**30 + 1", 10**30 + 1),
        ("12 / 4", 3),
        ("7 / 2", 3.5),
        ("10**400 / 10**398", 100),
        ("0 * 5 / 3", 0),
        ("3 × 4 ÷ 2 − 1", 5),  # noqa: RUF001 — as people and models write it
        ("2 · 3", 6),
        ("pi * 2", math.tau),
        ("tau / e", math.tau / math.e),
        ("(-8) ** 2.0", 64.0),
        ("sqrt(16)", 4),
        ("sqrt(2)", math.sqrt(2)),
        ("sqrt(10**400)", 10**200),
        ("abs(-3)", 3),
        ("round(2.567, 2)", 2.57),
        ("round(2.5)", 2),
        ("round(12345, -2)", 12300),
        ("min(3, 1.5, 2)", 1.5),
        ("max(3, 1.5, 2)", 3),
        ("min(4)", 4),
        ("floor(-2.5)", -3),
        ("ceil(2.1)", 3),
        ("log(e)", 1.0),
        ("log(1000, 10)", 3.0),
        ("log(8, 2)", 3.0),
        ("log(81, 3)", 4.0),
        ("log2(8)", 3.0),
        ("log10(10**300)", 300.0),
        ("exp(0)", 1.0),
        ("sin(0) + cos(0) + tan(0)", 1.0),
        ("asin(1) + acos(1) + atan(0)", math.pi / 2),
        ("atan2(1, 1)", math.pi / 4),
        ("degrees(pi)", 180.0),
        ("radians(180)", math.pi),
        ("factorial(20)", math.factorial(20)),
        ("factorial(5.0)", 120),
        ("factorial(0)", 1),
        ("gcd(12, 18, 27)", 3),
        ("lcm(4, 6, 10)", 60),
        ("hypot(3, 4)", 5.0),
        ("comb(49, 6)", 13_983_816),
        ("comb(5, 9)", 0),
        ("comb(10**100, 2)", 10**100 * (10**100 - 1) // 2),
        ("perm(5, 2)", 20),
        ("perm(5)", 120),
        ("perm(2, 5)", 0),
        ("sum(1, 2, 3)", 6),
        ("sum(0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)", 1.0),
        ("mean(1, 2, 6)", 3),
        ("mean(1, 2)", 1.5),
        ("max(1,200)", 200),
        ("2 ** 4095", 2**4095),
        ("+".join(["1"] * 500), 500),
        ("-".join(["9"] * 400), 9 - 9 * 399),
        ("(" * 40 + "1" + ")" * 40, 1),
        ("(" * 200 + "1" + ")" * 200, 1),
        ("(" * 200 + "1" + "+1)" * 200, 201),
        ("1+(" * 48 + "1" + ")" * 48, 49),
        ("-" * 49 + "1", -1),
        ("abs(" * 49 + "1" + ")" * 49, 1),
        ("2 ** -3 ** 2", 2**-9),
        ("2 * -3 ** 2 * 2", -36),
        ("-2 * -3 - -4", 10),
        ("max(1, 2,)", 2),
        ("max (1, (2) , )", 2),
        ("0xE1 + 0o17 + 1.e1 + 007.5 + 1_0e-1_0", 0xE1 + 15 + 10.0 + 7.5 + 10e-10),
    ],
)  # fmt: skip
def test_an_expression_has_its_value(expression: str, expected: Number) -> None:
    result = evaluate(expression)
    assert type(result) is type(expected)
    assert result == expected or math.isclose(result, expected, rel_tol=1e-14)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        # what was written
        ("", "is empty; numbers, + -"),
        (" \n ", "is empty"),
        ("1" * 1001, "has 1,001 characters, more than 1,000; split it"),
        ("2 ^ 3", "at position 3 has '^': use ** for powers"),
        ("  2 ^ 3", "at position 3 has '^'"),
        ("1 = 2", "has '=': give only the expression"),
        ("1 < 2", "comparisons are not supported"),
        ("5!", "use factorial(n)"),
        ("√2", "use sqrt(x)"),
        ("2π", "at position 2 has 'π': write pi"),
        ("3²", "write ** 2"),
        ("$5 + 3", "leave out the currency sign"),
        ("'a' * 3", "texts are not supported"),
        ("sum([1, 2])", "use parentheses, and give numbers to a function one by one: sum(1, 2, 3)"),
        ("math.sqrt(2)", "leave out prefixes: sqrt(2), not math.sqrt(2)"),
        ("1 # 2", "has '#': only numbers, + -"),
        ("1 @ 2", "has '@': only numbers, + -"),
        ("1 << 2", "comparisons are not supported"),
        ("2pi", "at position 2 has '2pi': write 2 * pi to multiply"),
        ("3j", "has '3j'"),
        ("2(3 + 4)", "at position 1 has a number right before '(': write * to multiply"),
        ("pi(2)", "has a number right before '('"),
        ("(1 + 2)(3)", "has a number right before '('"),
        ("1,000 + 5", "has '000': write numbers without leading zeros and without thousands separators"),
        ("1,234 + 5", "has a comma outside a function: write 1000 rather than 1,000"),
        ("sum(1,200, 3,400)", "has commas with and without a space: write 1000 rather than 1,000"),
        ("007", "has '007': write numbers without leading zeros"),
        ("(1 + 2", "at position 1 cannot be read: '(' was never closed"),
        ("max(1, 2", "at position 1 cannot be read: 'max(' was never closed"),
        ("1 + 2)", "at position 6 cannot be read: ')' was never opened"),
        ("1 +", "at position 4 cannot be read: a number is missing before the end"),
        ("1 + * 2", "at position 5 cannot be read: a number is missing before '*'"),
        ("()", "at position 2 cannot be read: a number is missing before ')'"),
        ("max(1,, 2)", "at position 7 cannot be read: a number is missing before ','"),
        ("max(,)", "at position 5 cannot be read: a number is missing before ','"),
        ("1 2", "at position 3 cannot be read: an operator such as * is missing before '2'"),
        ("2 pi", "at position 3 cannot be read: an operator such as * is missing before 'pi'"),
        ("2 sqrt(4)", "at position 3 cannot be read: an operator such as * is missing before 'sqrt('"),
        ("1 + 1__0", "at position 5 cannot be read: '1__0' is not a number"),
        ("(1,)", "at position 3 has a comma outside a function"),
        ("(sqrt)(4)", "at position 2 has 'sqrt' without its numbers: write sqrt(…)"),
        ("15% of 200", "% is the remainder, for 15 per cent write * 0.15"),
        ("200 * 15%", "% is the remainder, for 15 per cent write * 0.15"),
        ("1 if 2 else 3", "at position 3 has an unknown name 'if'"),
        ("not 1", "at position 1 has an unknown name 'not'"),
        ("1 and 2", "at position 3 has an unknown name 'and'"),
        ("7 mod 2", "at position 3 has an unknown name 'mod': use x % y"),
        ("True + 1", "at position 1 has an unknown name 'True'"),
        ("max(*pi)", "at position 5 cannot be read: a number is missing before '*'"),
        ("(yield)", "at position 2 has an unknown name 'yield'"),
        ("lambda", "at position 1 has an unknown name 'lambda'"),
        ("sqrt(2, **e)", "at position 9 cannot be read: a number is missing before '**'"),
        # names
        ("sqr(2)", "at position 1 has an unknown function 'sqr': use sqrt"),
        ("1 + Sqrt(4)", "at position 5 has an unknown function 'Sqrt': use sqrt"),
        ("ln(2)", "unknown function 'ln': use log(x)"),
        ("pow(2, 3)", "unknown function 'pow': use x ** y"),
        ("__import__(1)", "unknown function '__import__'; known are abs, acos,"),
        ("x + 1", "unknown name 'x'; known are abs, acos,"),
        ("sqrt + 1", "has 'sqrt' without its numbers: write sqrt(…)"),
        ("sqrt()", "gives 0 numbers to sqrt(…), which takes 1"),
        ("round(1, 2, 3)", "gives 3 numbers to round(…), which takes 1 or 2"),
        ("max()", "gives 0 numbers to max(…), which takes 1 or more"),
        # what has no value
        ("1 + 2 / 0", "at position 9 cannot be computed: 2 / 0 divides by zero"),
        ("1 % 0", "1 % 0 divides by zero"),
        ("1 // 0.0", "1 // 0 divides by zero"),
        ("0 ** -1", "0 ** -1 divides by zero"),
        ("log(5, 1)", "log(5, 1) divides by zero"),
        ("sqrt(-1)", "at position 1 cannot be computed: sqrt(-1) is not defined for real numbers"),
        ("log(0)", "log(0) is not defined"),
        ("acos(2)", "acos(2) is not defined"),
        ("(-8) ** 0.5", "-8 ** 0.5 is not defined for real numbers"),
        ("factorial(-1)", "factorial(-1) needs numbers that are not negative"),
        ("factorial(2.5)", "factorial(2.5) needs whole numbers"),
        ("gcd(1.5, 2)", "gcd(1.5, 2) needs whole numbers"),
        ("round(1.5, 0.5)", "needs whole numbers"),
        ("round(1, -10**9)", "rounds to more than 400 digits"),
        # what is too large
        ("1e999", "has a number that is too large (whole numbers may have 1,233 digits"),
        ("1e308 * 10", "1e+308 * 10 is too large"),
        ("exp(1000)", "exp(1000) is too large"),
        ("2 ** 4096", "2 ** 4096 is too large"),
        ("9 ** 9 ** 9 ** 9", "9 ** 387420489 is too large"),
        ("(-9) ** 9 ** 9", "too large"),
        ("10 ** 1000 * 10 ** 1000", "100000000000…000000 * 100000000000…000000 is too large"),
        ("10 ** 400 + 0.5", "too large"),
        ("10 ** 400 / 3", "too large"),
        ("sin(10 ** 400)", "too large"),
        ("factorial(600)", "factorial(600) is too large"),
        ("factorial(10 ** 1000)", "too large"),
        ("comb(10 ** 1000, 10 ** 999)", "too large"),
        ("comb(100000, 50000)", "too large"),
        ("perm(10 ** 6, 10 ** 5)", "too large"),
        ("perm(10 ** 1000)", "too large"),
        ("lcm(10 ** 900 + 1, 10 ** 901 + 7)", "too large"),
        ("1e308 // 1e-308", "too large"),
        # what nests too deeply
        ("-" * 200 + "1", "nested more than 50 levels deep; split it"),
        ("-" * 999 + "1", "split it into several expressions"),
        ("(" * 400 + "1" + ")" * 400, "has more than 200 parentheses in one another; split it"),
        ("(" * 201 + "1" + ")" * 201, "has more than 200 parentheses in one another"),
        ("-" * 50 + "1", "nested more than 50 levels"),
        ("abs(" * 60 + "1" + ")" * 60, "nested more than 50 levels"),
        ("1**" * 300 + "1", "nested more than 50 levels"),
    ],
)  # fmt: skip
def test_an_expression_without_a_value_says_what_to_write(expression: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(expression)
    assert message in str(caught.value)
    assert str(caught.value).startswith("the expression ")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (84, "84"),
        (84.0, "84"),
        (0.1 + 0.2, "0.3"),
        (1 / 3, "0.333333333333333"),
        (2.5, "2.5"),
        (-0.0, "0"),
        (123456789012345.0, "123456789012345"),
        (1e300, "1e+300"),
        (1.5e-7, "1.5e-07"),
        (10**30, "1" + "0" * 30),
        (-(10**30), "-1" + "0" * 30),
        (sum([0.1] * 10), "1"),
    ],
)
def test_numbers_are_written_for_a_reader(value: float, expected: str) -> None:
    assert format_number(value) == expected


def test_an_integer_that_python_would_not_print_is_written_in_short() -> None:
    assert format_number(2**20_000) == "3.98028e+6020"
    assert format_number(-(2**20_000)) == "-3.98028e+6020"


def test_the_largest_result_is_written_in_full() -> None:
    assert format_number(evaluate("2 ** 4095")) == str(2**4095)


# --- anything at all -------------------------------------------------------------------------------------------------


def value_or_none(expression: str) -> Number | None:
    try:
        return evaluate(expression)
    except ExpressionError:
        return None


def check_outcome(expression: str) -> None:
    result = value_or_none(expression)
    if result is not None:
        assert type(result) in {int, float}
        assert result.bit_length() <= 4096 if isinstance(result, int) else math.isfinite(result)
        assert format_number(result)


@given(st.text())
@settings(deadline=None)
def test_any_text_gives_a_finite_number_or_a_clear_error(text: str) -> None:
    check_outcome(text)


PIECES = [
    *FUNCTIONS,
    *CONSTANTS,
    *"0123456789.,+-*/%()_ ",
    "**",
    "//",
    "e9",
    "0x",
    "10**1000",
    "9e99",
    "if",
    "or",
    "None",
]


@given(st.lists(st.sampled_from(PIECES), max_size=120).map("".join))
@settings(max_examples=400 if FULL else 100, deadline=None)
def test_any_pieces_give_a_finite_number_or_a_clear_error(text: str) -> None:
    check_outcome(text)


literals = st.one_of(
    st.integers(0, 10**6).map(str),
    st.integers(0, 10**400).map(str),
    st.floats(0, 1e300).map(repr),
    st.sampled_from(sorted(CONSTANTS)),
)


def calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arguments = st.lists(inner, min_size=1, max_size=3).map(", ".join)
    return st.builds("{}({})".format, st.sampled_from(sorted(FUNCTIONS)), arguments)


def operations(operators: list[str], inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("({} {} {})".format, inner, st.sampled_from(operators), inner)


ALL_OPERATORS = ["+", "-", "*", "/", "//", "%", "**"]


@given(st.recursive(literals, lambda inner: st.one_of(calls(inner), operations(ALL_OPERATORS, inner)), max_leaves=12))
@settings(max_examples=400 if FULL else 100, deadline=None)
def test_any_well_formed_expression_gives_a_finite_number_or_a_clear_error(text: str) -> None:
    check_outcome(text)


def python_value(expression: str) -> Number | None:
    """Return what Python makes of the same text; None if it has no value."""
    try:
        value: Number = eval(expression, {"__builtins__": {}})
    except (ZeroDivisionError, OverflowError):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


whole = st.integers(0, 1000).map(str)
decimal = st.floats(0, 1e6, allow_subnormal=False).map(repr)
chains = st.lists(st.tuples(st.sampled_from(["+", "-", "*", "//", "%"]), whole), max_size=20)


@given(st.recursive(whole, lambda inner: operations(["+", "-", "*", "//", "%"], inner), max_leaves=12))
@settings(deadline=None)
def test_whole_numbers_are_computed_exactly_as_python_does(text: str) -> None:
    assert value_or_none(text) == python_value(text)


@given(whole, chains)
@settings(deadline=None)
def test_precedence_is_that_of_python(first: str, rest: list[tuple[str, str]]) -> None:
    text = first + "".join(f" {symbol} {number}" for symbol, number in rest)
    assert value_or_none(text) == python_value(text)


@given(st.recursive(decimal, lambda inner: operations(["+", "-", "*", "/", "//", "%"], inner), max_leaves=12))
@settings(deadline=None)
def test_decimal_numbers_are_computed_as_python_does(text: str) -> None:
    assert value_or_none(text) == python_value(text)


@given(st.integers(-(10**40), 10**40), st.integers(-(10**20), 10**20).filter(bool))
@settings(deadline=None)
def test_a_division_is_exact_where_it_can_be(dividend: int, divisor: int) -> None:
    exact = Fraction(dividend, divisor)
    result = evaluate(f"({dividend}) / ({divisor})")
    assert result == (exact.numerator if exact.denominator == 1 else dividend / divisor)
    assert isinstance(result, int) is (exact.denominator == 1)


@given(st.integers(-50, 50), st.integers(0, 60))
@settings(deadline=None)
def test_a_power_is_that_of_python(base: int, exponent: int) -> None:
    assert evaluate(f"({base}) ** {exponent}") == base**exponent


@given(st.integers(0, 300), st.integers(0, 300))
@settings(deadline=None)
def test_ways_to_choose_are_counted_as_python_does(n: int, k: int) -> None:
    assert evaluate(f"comb({n}, {k})") == math.comb(n, k)
    assert evaluate(f"perm({n}, {k})") == math.perm(n, k)


@given(st.integers(480, 620))
@settings(deadline=None)
def test_the_limit_is_the_size_of_the_result_and_nothing_else(n: int) -> None:
    expected = math.factorial(n)
    assert value_or_none(f"factorial({n})") == (expected if expected.bit_length() <= 4096 else None)


@given(st.integers(2, 10**50), st.integers(0, 5000))
@settings(deadline=None)
def test_powers_up_to_the_limit_are_computed(base: int, exponent: int) -> None:
    fits = (base.bit_length() - 1) * exponent <= 4096 and (base**exponent).bit_length() <= 4096
    assert value_or_none(f"{base} ** {exponent}") == (base**exponent if fits else None)


# --- Python's own parser as the oracle -------------------------------------------------------------------------------

SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
}  # fmt: skip


class RefusedError(Exception):
    pass


def walked(node: ast.AST, text: str) -> Number:
    """Return the value of what Python has read; raise if it is not arithmetic or has no value."""
    match node:
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            if re.fullmatch("0[0-9_]+", ast.get_source_segment(text, node) or ""):
                raise RefusedError  # Python takes 00
            return computed(operator.pos, value)
        case ast.Name(name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -walked(operand, text)
        case ast.UnaryOp(ast.UAdd(), operand):
            return walked(operand, text)
        case ast.BinOp(left, symbol, right):
            return computed(OPERATORS[SYMBOLS[type(symbol)]][-1], walked(left, text), walked(right, text))
        case ast.Call(ast.Name(name) as called, arguments, []) if name in FUNCTIONS:
            function, fewest, most = FUNCTIONS[name]
            in_parentheses = not text[called.end_col_offset :].lstrip().startswith("(")
            if in_parentheses or not fewest <= len(arguments) <= (most or len(text)):
                raise RefusedError
            return computed(function, *(walked(argument, text) for argument in arguments))
    raise RefusedError


def computed(function: Callable[..., Number], *numbers: Number) -> Number:
    try:
        value = function(*numbers)
    except (ArithmeticError, ValueError):
        raise RefusedError from None
    if not abs(value) < 2**LARGEST_BITS:
        raise RefusedError
    return value


def oracle(text: str) -> str:
    if ", " in text and re.search(r"[0-9],[0-9]{3}(?![0-9])", text):
        return "refused"
    try:
        value = walked(ast.parse(text.strip(), mode="eval").body, text.strip())
    except (SyntaxError, RefusedError):
        return "refused"
    return repr(value)


def random_expression(random: Random, depth: int) -> str:
    def inner() -> str:
        return random_expression(random, depth - 1)

    blank = random.choice(["", "", " "])
    match random.randrange(7) if depth else 0:
        case 0 | 1:
            return random.choice(["0", "1", "2", "3", "10", "0.5", "1.", ".5", "2e1", "0x1F", "0b11", "1_0", "pi", "e"])
        case 2 | 3:
            return f"{inner()}{blank}{random.choice(sorted(SYMBOLS.values()))}{blank}{inner()}"
        case 4:
            return f"{random.choice('+-')}{blank}{inner()}"
        case 5:
            return f"({inner()}{blank})"
        case _:
            name = random.choice(["max", "sum", "gcd", "abs", "round", "log"])
            arguments = ",".join(inner() for _ in range(random.randrange(1, 4)))
            return f"{name}{blank}({arguments}{random.choice(['', ','])})"


def mutated(random: Random, text: str) -> str:
    place = random.randrange(len(text) + 1)
    inserted: str = random.choice(["", *"()+-*/%,. _0127ex", "**", "//", " if ", "max", "e1", "pi"])
    return text[:place] + inserted + text[place + random.randrange(3) :]


def test_every_expression_is_read_as_python_reads_it() -> None:
    random = Random(7)
    accepted = 0
    for _ in range(6000):
        text = random_expression(random, 4)
        for _ in range(random.randrange(3)):
            text = mutated(random, text)
        value = value_or_none(text)
        accepted += value is not None
        assert ("refused" if value is None else repr(value)) == oracle(text), text
    assert 1500 < accepted < 4500  # so that both kinds are many


def test_no_expression_is_too_deep_for_a_stack_that_is_nearly_full() -> None:
    def evaluate_below(frames: int, expression: str) -> Number | None:
        return evaluate_below(frames - 1, expression) if frames else value_or_none(expression)

    used = len(inspect.stack(0))
    for expression in ("(" * 200 + "1" + ")" * 200, "abs(" * 49 + "1" + ")" * 49, "-" * 49 + "1", "1-" * 499 + "1"):
        assert evaluate_below(sys.getrecursionlimit() - used - 20, expression) is not None


def test_the_longest_text_is_taken() -> None:
    assert evaluate("1" * LONGEST_TEXT) == int("1" * LONGEST_TEXT)
