"""What a message plainly asks for: a sum, the time, a program to run. What is only mentioned is not asked for."""

import ast
import builtins
import re
from collections.abc import Sequence
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SMALL_WORDS = frozenset(
    (  # noqa: SIM905 — words are read more easily as one text
        "about again all also am an and any are as at be but by call can could current did do does exactly for from "
        "get give has have hello here hey hi how if in into is it its just know let like many me moment more much my "
        "need no not now of on one or please right run say so some tell that the then there these they this to try two "
        "use user want was we were what when where which who why will with would yes you your"
    ).split()
)
_SYNONYMS = dict.fromkeys(("clock", "date", "day", "hour", "today", "weekday"), "time")

LEAD = (
    r"\s*(?:(?:(?:hello|hi|hey)(?: \w+)?\s*[,!.:]|(?:and|so|then|now|ok|okay|well|please|just|also|first)\b,?"
    r"|(?:can|could|would|will) you|i(?: want| need|'d like| would like) (?:you )?to(?: know)?|do you know|let'?s"
    r"|(?:tell|give|show)(?: me)?)\s+)*"
)
"""How people begin before they come to what they ask."""


def words(text: str) -> frozenset[str]:
    """Return what a text or an identifier is about: its words in lower case, without plurals and small words."""
    found = (word.lower() for word in _WORD.findall(text))
    single = (word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] != "s" else word for word in found)
    return frozenset(_SYNONYMS.get(word, word) for word in single if len(word) > 1 and word not in _SMALL_WORDS)


HELLO = (
    "(?:hello|hi|hey|good (?:morning|afternoon|evening|day)|hallo|guten (?:morgen|tag|abend)|moin|bonjour|salut|hola"
    "|buenos d[ií]as|ciao|ol[aá]|привет|здравствуйте|こんにちは|你好)"
)

# --- sums ------------------------------------------------------------------------------------------------------------

_SMALL = (  # noqa: SIM905 — as above
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905 — as above
_LARGE = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_SPELLED = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})(?:[- ](?P<more>{'|'.join(_SMALL[1:10])}))?|(?P<small>{'|'.join(_SMALL)}))"
    rf"(?: (?P<large>{'|'.join(_LARGE)}))?\b",
    re.IGNORECASE,
)
_NUMBER = r"-?\d+(?:\.\d+)?"
_OF_NUMBERS = re.compile(
    rf"(?P<what>sum|total|product|difference|quotient|average|mean) (?:of|between) (?P<all>{_NUMBER}"
    rf"(?:(?:, ?(?:and )?| and ){_NUMBER})+)",
    re.IGNORECASE,
)
_BETWEEN = {"sum": " + ", "total": " + ", "product": " * ", "difference": " - ", "quotient": " / "}
_OPERATORS = {
    rf"\bhalf of ({_NUMBER})": r"\1 / 2",
    rf"\b(?:double|twice) ({_NUMBER})": r"2 * \1",
    r"\s*(?:%|\bpercent\b)\s*of\s+": " / 100 * ",
    r"\bsquare root of (\d+(?:\.\d+)?)": r"sqrt(\1)",
    r"\s+squared\b": "**2",
    r"\s+cubed\b": "**3",
    r"\s*\^\s*|\s+to the power of\s+": "**",
    r"\s+(?:times|multiplied by|mal)\s+|(?<=\d)(?<!\b0)\s*[x×]\s*(?=\d)": " * ",  # noqa: RUF001 — as people write it
    r"\s+divided by\s+|\s*÷\s*": " / ",
    r"\s+plus\s+": " + ",
    r"\s+minus\s+": " - ",
    r"(?<=\d),(?=\d{3}(?!\d))": "",
}
_FUNCTION = r"(?:sqrt|abs|round|min|max|sum|mean|log10|log2|log|factorial|sin|cos|tan)\("
_SUM = re.compile(rf"(?:-?[\d(]|\bpi\b|{_FUNCTION})(?:{_FUNCTION}|\bpi\b|[\d.,\t +*/%()-])*")
_ASKS_SUM = re.compile(
    rf"[\s¿]*{LEAD}(?:use (?:the|a|your) calculator (?:to|and|for)\s+)?"
    r"(?:(?:what(?:['’]?s| is| are| about)?|how (?:much|many) (?:is|are)|how about|is|calculate|compute|evaluate"  # noqa: RUF001
    r"|solve|work out|was (?:ist|sind|ergibt)|wie ?viel (?:ist|sind|ergibt)|berechne|combien (?:font|fait)|calcule"
    r"|cu[aá]nto es|calcula|quanto fa)\b:?\s*)?(?:the (?:(?:result|value) of )?)?",
    re.IGNORECASE,
)
_AFTER_SUM = re.compile(r"(?:[\s,]*(?:please|for me|now))*(?:\s*(?:=|\bequals?\b))?[\s?.!;]*$", re.IGNORECASE)
_BETWEEN_SUMS = re.compile(r"\s+(?:and|the same as|equal to)\s+", re.IGNORECASE)
_NO_SUM = re.compile(
    r"24/7|9/11|50/50|20/20|\d{3}-\d{4}|\d{1,2}(?P<a>[/-])\d{1,2}(?P=a)\d{4}|\d{4}(?P<b>[/-])\d{1,2}(?P=b)\d{1,2}"
)
"""Sayings, telephone numbers and dates."""
_LONGEST_SUM = 200


def sums(text: str) -> list[str]:
    """Return the arithmetic that a text asks for, also if it is written in words, in the notation of Python.

    It must be all that is asked: what stands among other words may mean anything.
    """
    rest = _ASKS_SUM.sub("", text, count=1)
    if factorial := re.fullmatch(r"(\d{1,4})!\s*\??", rest):
        return [f"factorial({factorial[1]})"]
    if len(rest) > _LONGEST_SUM:
        return []
    rest = rest[: found.start()] if (found := _AFTER_SUM.search(rest)) else rest
    if _NO_SUM.fullmatch(rest):
        return []
    rest = _SPELLED.sub(_in_digits, rest)
    if named := _OF_NUMBERS.fullmatch(rest):
        return [_of_numbers(named["what"].lower(), re.findall(_NUMBER, named["all"]))]
    for pattern, sign in _OPERATORS.items():
        rest = re.sub(pattern, sign, rest, flags=re.IGNORECASE)
    each = [_computable(part.strip()) for part in _BETWEEN_SUMS.split(rest)]
    return list(dict.fromkeys(expression for part in each for expression in part)) if all(each) else []


def _in_digits(spelled: re.Match[str]) -> str:
    """Return a number that is written as a word, or as two."""
    small, tens, more, large = (str(spelled[name] or "").lower() for name in ("small", "tens", "more", "large"))
    number = _SMALL.index(small) if small else 10 * (_TENS.index(tens) + 2) + (_SMALL.index(more) if more else 0)
    return str(number * _LARGE.get(large, 1))


def _of_numbers(what: str, numbers: list[str]) -> str:
    """Return the expression for what is asked of several numbers, such as their sum."""
    sign = _BETWEEN.get(what)
    return f"({' + '.join(numbers)}) / {len(numbers)}" if sign is None else sign.join(numbers)


def _computable(text: str) -> list[str]:
    """Return the expressions of a text that is nothing else, separated by commas; nothing if one is only a number."""
    if not _SUM.fullmatch(text):
        return []
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    found = [ast.get_source_segment(text, part) or text for part in parts if isinstance(part, ast.BinOp | ast.Call)]
    return found if len(found) == len(parts) else []


# --- places and times ------------------------------------------------------------------------------------------------

_MOST_PLACES, _LONGEST_QUESTION = 8, 200
_PLACES = re.compile(r"\b(?:in|at|near|for|from) ([A-Z][\w/-]*(?:(?: |, ?| and )[A-Z][\w/-]*)*)")
_SMALL_PLACE = re.compile(r"\b(?:in|at|near) ([a-z]+(?: [a-z]+)?)")
_AREAS = ("Europe", "America", "Asia", "Africa", "Australia", "Pacific", "Atlantic", "Indian")
_ZONES = {
    "Europe/Berlin": ("germany", "munich", "hamburg", "cologne"),
    "Europe/Paris": ("france",),
    "Europe/London": ("england", "uk"),
    "Europe/Madrid": ("spain",),
    "Europe/Rome": ("italy",),
    "Asia/Tokyo": ("japan",),
    "Asia/Kolkata": ("india", "mumbai", "delhi"),
    "Asia/Shanghai": ("china", "beijing"),
    "America/New_York": ("boston", "new_york_city", "nyc", "washington"),
    "America/Los_Angeles": ("california", "san_francisco"),
}
"""Zones of places that no zone is named by."""
_NOW = r"(?:,?\s+(?:right now|now|today|currently|at the moment|please))*"
_TIME = re.compile(
    rf"{LEAD}(?:what\s+|what(?:['’]?s|\s+is)\s+(?=the|today|current|exact|local))?(?:the\s+|today['’]s\s+)?(?:(?:current|exact|local)\s+)?"  # noqa: RUF001
    r"(?:time|date|(?:day|weekday|month|year|hour)(?=\s+(?:is|it)\b))(?:\s+and\s+(?:the\s+)?(?:time|date))?"
    rf"(?:\s+(?:is it|it is|is today))?{_NOW}(?:\s+(?:in|for|at)\s+(?P<places>[^\W\d][^\d?!.]*?))?{_NOW}[\s?.!]*",
    re.IGNORECASE,
)


_TIME_ELSEWHERE = re.compile(
    r"[\s¿]*(?:wie sp(?:ä|ae)t ist es|wie ?viel uhr ist es|quelle heure est[- ]il|qu[eé] hora es|che ore sono)"
    r"(?: (?:jetzt|gerade|maintenant|ahora|adesso))?(?: (?:in|à|en|a) (?P<places>[^\W\d][^\d?!.]*?))?[\s?.!]*",
    re.IGNORECASE,
)
_FURTHER = re.compile(
    r"\W*(?:and|what about|how about)\b(?:\s+(?:in|for|at)\b)?\s+(?P<place>[^\W\d][\w ,/-]{0,80}?)[\s?.!]*",
    re.IGNORECASE,
)


def in_full(text: str, earlier: Sequence[str]) -> str:
    """Return a question with what it leaves off since it was said before: the time, of another place."""
    further = _FURTHER.fullmatch(text) if len(text) <= _LONGEST_QUESTION else None
    before = next((said for said in reversed(earlier) if not _FURTHER.fullmatch(said[:_LONGEST_QUESTION])), "")
    return f"What time is it in {further['place']}?" if further and asked_places(before) is not None else text


def asked_places(text: str) -> list[str] | None:
    """Return the places whose time now is asked for, an empty one for that of no place; None if something else is."""
    match = (_TIME.fullmatch(text) or _TIME_ELSEWHERE.fullmatch(text)) if len(text) <= _LONGEST_QUESTION else None
    if match is None:
        return None
    return re.split(r",? and |, ?", match["places"])[:_MOST_PLACES] if match["places"] else [""]


def places(text: str) -> list[str]:
    """Return the places that a text names after `in` and the like."""
    listed = (name for match in _PLACES.finditer(text) for name in re.split(r", ?| and ", match.group(1)))
    found = [name for name in dict.fromkeys(listed) if words(name)][:_MOST_PLACES]
    small = None if found else _SMALL_PLACE.search(text)
    if small and words(small.group(1)):
        found = [small.group(1) if zone_of(small.group(1)) else small.group(1).split()[0]]
    return found


def zone_of(place: str) -> str | None:
    """Return the time zone of a place: of one that zones are named by, and of a few others."""
    spelled = re.sub(r"[ ,]+", "_", place.strip())
    if not re.fullmatch(r"[\w/+-]{2,40}", spelled):
        return None
    known = [zone for zone, names in _ZONES.items() if spelled.lower() in names]
    for name in (*known, *(f"{area}/{spelled.title()}" for area in _AREAS), spelled, spelled.upper()):
        try:
            return ZoneInfo(name).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return None


# --- pictures --------------------------------------------------------------------------------------------------------

_DRAWS = re.compile(
    rf"{LEAD}(?:(?:make|create|generate|draw|paint)(?: me)?(?: an?| the| some)? (?:picture|image|drawing|painting)s?"
    r"(?: of| with| showing)"
    r"|(?:draw|paint|sketch)(?: me)?(?! (?:a |an |any |the )?(?:conclusion|parallel|distinction|lot|line)s?\b))"
    r" (?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)


def drawing(text: str) -> str:
    """Return what a text asks to draw; nothing if it asks for something else."""
    match = _DRAWS.match(text)
    return match["what"].rstrip(" \n?.!") if match else ""


# --- programs --------------------------------------------------------------------------------------------------------

_RUNS = re.compile(
    rf"{LEAD}(?:run|execute|evaluate)\b\s*(?:(?:this|the|following|my|python|code|program|script)\b\s*)*:?\s*",
    re.IGNORECASE,
)
_FENCE = re.compile(r"```(?P<language>\w*)[ \t]*\n(?P<code>.*?)\n?```\s*", re.DOTALL)
_PYTHON = frozenset({"python", "python3", "py"})


def program(text: str) -> str:
    """Return the Python program that a text asks to run: in a fence or after the word; nothing if it is none."""
    told = _RUNS.match(text)
    rest = text[told.end() :] if told else text.strip()
    if fence := _FENCE.fullmatch(rest):
        language = fence["language"].lower()
        fits = language in _PYTHON or (told and not language)
        return fence["code"] if fits and _syntax(fence["code"]) else ""
    code = rest.rstrip(" \n?.!").strip(" `")
    tree = _syntax(code) if told else None
    # Words may happen to be Python too: `run tests`, `run away (fast)`.
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []
    known = any(isinstance(called, ast.Name) and hasattr(builtins, called.id) for called in calls)
    return code if known else ""


def _syntax(code: str) -> ast.AST | None:
    try:
        tree: ast.Module = compile(code, "<program>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if tree.body else None
