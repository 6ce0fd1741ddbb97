"""Arithmetic in a text, written with signs or in words."""

import re
from dataclasses import dataclass

__all__ = ["Expression", "expressions"]

_LONGEST = 2000
_DEEPEST = 20
_MOST_SIGNS = 4

_FUNCTION = (
    "sqrt|abs|round|floor|ceil|min|max|sum|mean|exp|log10|log2|log|factorial|gcd|lcm|comb|perm|hypot|asin|acos|atan"
    "|sin|cos|tan"
)
_ENDS_NUMBER = r"(?=[^\w]|[²³]|x\s*[\d(]|$)(?![.,]\d)"
_TOKEN = re.compile(
    rf"""
      (?P<space> \s+ )
    | (?P<percent> %\s*(?:of|von)\b )
    | (?P<number> (?<![^\Wx]) (?<!\.)
        (?: \d{{1,3}}(?:,\d{{3}})+(?:\.\d+)? | \d+[.,]\d+ | \d+ | \.\d+ ) (?:[eE][+-]?\d+)? {_ENDS_NUMBER} )
    | (?P<root> \b(?:the\s+)?(?:square\s+root\s+of|wurzel\s+(?:aus|von))\b | √ )
    | (?P<function> \b(?:{_FUNCTION})\s*\( )
    | (?P<constant> \b(?:pi|tau|e)\b | π )
    | (?P<power> \*\* | \^ | \bto\s+the\s+power\s+of\b | \bhoch\b )
    | (?P<times> [*×✕⋅·] | \b(?:times|multiplied\s+by|mal|multipliziert\s+mit)\b | (?<![^\W\d])x(?=\s*[\d(]) )
    | (?P<whole> // )
    | (?P<over> [/÷] | \b(?:divided\s+by|geteilt\s+durch|durch)\b )
    | (?P<plus> \+ | \bplus\b )
    | (?P<minus> [-−–] | \bminus\b )
    | (?P<modulo> % | \bmod(?:ulo)?\b )
    | (?P<squared> ² | \bsquared\b )
    | (?P<cubed> ³ | \bcubed\b )
    | (?P<open> \( ) | (?P<close> \) ) | (?P<comma> , )
    | (?P<other> \w+ | . )
    """,  # noqa: RUF001 — signs as people write them
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_NUMBER_IN_CALL = re.compile(r"\d+(?:\.\d+)?")
_OPERATORS = {
    "percent": "/ 100 *",
    "power": "**",
    "times": "*",
    "whole": "//",
    "over": "/",
    "plus": "+",
    "minus": "-",
    "modulo": "%",
}
_POSTFIXES = {"squared": "**2", "cubed": "**3"}
_WEAK = frozenset({"minus", "over"})
_CUE = re.compile(
    r"\b(?:what(?:'s|’s| is| are)|how (?:much|many)|comput\w*|calculat\w*|evaluat\w*|work out|solve|result of"  # noqa: RUF001
    r"|wie ?viel|was (?:ist|sind|ergibt)|berechn\w*|rechne\w*)\b|=",
    re.IGNORECASE,
)
_NOT_ARITHMETIC = re.compile(r"\w+://\S+|\b\d{4}-\d\d-\d\d\b|\b\d+(?:\.\d+){2,}\S*")


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression in the usual notation, and the words of its operators."""

    text: str
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    spaced: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of an expression that was read, and where the next begins."""

    text: str
    after: int
    operators: tuple[str, ...] = ()


def expressions(text: str) -> list[Expression]:
    """Return the arithmetic expressions of a text.

    Dashes and slashes alone mean many things, so they count only where the text asks for a result or is nothing else.
    """
    text = _NOT_ARITHMETIC.sub(lambda match: "#" * len(match.group()), text[:_LONGEST])
    tokens = _tokens(text)
    cued = _CUE.search(text) is not None
    found: list[Expression] = []
    at = 0
    while at < len(tokens):
        part = _expression(tokens, at, _DEEPEST)
        if part is None or not part.operators:
            at += 1
            continue
        alone = not text[: tokens[at].start].strip() and not text[tokens[part.after - 1].end :].strip(" ?.!=\n\t")
        if cued or alone or not _WEAK.issuperset(part.operators):
            found.append(Expression(part.text, part.operators))
        at = part.after
    return found


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    calls: list[bool] = []  # for each open parenthesis, whether it belongs to a function
    at, spaced = 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:  # pragma: no cover — the last alternative takes any character
            break
        kind = str(match.lastgroup)
        if kind == "number" and any(calls):  # a comma between arguments is no decimal comma
            match = _NUMBER_IN_CALL.match(text, at) or match
        if kind in {"open", "function"}:
            calls.append(kind == "function")
        elif kind == "close" and calls:
            calls.pop()
        if kind != "space":
            tokens.append(_Token(kind, match.group(), spaced, match.start(), match.end()))
        spaced = kind == "space"
        at = match.end()
    return tokens


def _expression(tokens: list[_Token], at: int, depth: int) -> _Part | None:
    """Read operands joined by operators, as far as they go."""
    part = _operand(tokens, at, depth)
    while part is not None and part.after < len(tokens):
        sign = tokens[part.after]
        if sign.kind in _POSTFIXES:
            part = _Part(part.text + _POSTFIXES[sign.kind], part.after + 1, (*part.operators, "power"))
            continue
        operand = _operand(tokens, part.after + 1, depth) if sign.kind in _OPERATORS else None
        if operand is None:
            break
        symbol = _OPERATORS[sign.kind]
        before = " " if sign.spaced or sign.kind == "percent" else ""
        after = " " if tokens[part.after + 1].spaced or sign.kind == "percent" else ""
        operators = (*part.operators, sign.kind, *operand.operators)
        part = _Part(f"{part.text}{before}{symbol}{after}{operand.text}", operand.after, operators)
    return part


def _operand(tokens: list[_Token], at: int, depth: int) -> _Part | None:
    signs = ""
    while at < len(tokens) and tokens[at].kind in {"minus", "plus"} and len(signs) < _MOST_SIGNS:
        signs += _OPERATORS[tokens[at].kind]
        at += 1
    if at >= len(tokens) or depth == 0:
        return None
    token = tokens[at]
    if token.kind == "number":
        return _Part(signs + _number(token.text), at + 1)
    if token.kind == "constant":
        return _Part(signs + ("pi" if token.text == "π" else token.text.lower()), at + 1)
    reading = {"open": _group, "root": _root, "function": _call}.get(token.kind)
    part = None if reading is None else reading(tokens, at, depth - 1)
    return None if part is None else _Part(signs + part.text, part.after, part.operators)


def _group(tokens: list[_Token], at: int, depth: int) -> _Part | None:
    inner = _expression(tokens, at + 1, depth)
    if inner is None or not _is(tokens, inner.after, "close"):
        return None
    return _Part(f"({inner.text})", inner.after + 1, inner.operators)


def _root(tokens: list[_Token], at: int, depth: int) -> _Part | None:
    inner = _operand(tokens, at + 1, depth)
    return None if inner is None else _Part(f"sqrt({inner.text})", inner.after, ("root", *inner.operators))


def _call(tokens: list[_Token], at: int, depth: int) -> _Part | None:
    """Read the arguments of a function up to the closing parenthesis."""
    arguments: list[str] = []
    operators: tuple[str, ...] = ("function",)
    after = at
    while True:
        inner = _expression(tokens, after + 1, depth)
        if inner is None:
            return None
        arguments.append(inner.text)
        operators += inner.operators
        after = inner.after
        if not _is(tokens, after, "comma"):
            break
    if not _is(tokens, after, "close"):
        return None
    name = tokens[at].text.rstrip("( \t\n").lower()
    return _Part(f"{name}({', '.join(arguments)})", after + 1, operators)


def _is(tokens: list[_Token], at: int, kind: str) -> bool:
    return at < len(tokens) and tokens[at].kind == kind


def _number(text: str) -> str:
    """Write a number with a decimal point, without separators of thousands and leading zeros."""
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    text = text.replace(",", ".")
    return re.sub(r"^0+(?=\d)", "", text)
