"""Where something is defined in source code: by words and braces, as far as these tell it in most languages.

No language is parsed. What is taken for a definition only decides where a text is best cut.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from antwort.lazy_imports import compiled_on_use

_NAMED = compiled_on_use(
    r"\s*+(?:(?:export|default|declare|public|private|protected|internal|static|async|abstract|final|sealed|override"
    r"|virtual|inline|open|data|suspend|unsafe|const|extern|pub)(?:\([\w ]++\)|\s*\"\w*\")?\s++)*+"
    r"(?:def|class|func|fn|function|interface|struct|enum|union|trait|impl|type|mod|module|namespace|object|record)\b\*?"
    r"(?:<[^>\n]*+>)?\s*+(?:\([^()\n]*+\)\s*+)?(?P<name>[\w.$]+(?:::[\w.$]+)*)"
)
"""A word that defines something, and its name; in Go, whose method it is stands between them."""
_ASSIGNED = compiled_on_use(
    r"\s*+(?:export\s++)?(?:const|let|var)\s++(?P<name>[\w$]++)[^=\n]*+=\s*+(?:async\s++)?"
    r"(?:function\b|\([^()\n]*+\)[^=\n]*+=>|[\w$]++\s*+=>)"
)
"""A function of JavaScript that is given a name."""
_BRACED = compiled_on_use(
    r"\s*+(?!(?:if|else|for|foreach|while|switch|case|catch|do|try|with|using|lock|return|await|new|throw|match|unless)\b)"
    r"(?:[\w.:<>\[\],?*&~@]++\s++)*+(?P<name>[\w$:~]++)\s*+\([^;{}\n]*+(?:\)[^;={}()\n]*+)?\{\s*+$"
)
"""A function of C, Java or JavaScript, without a word that says so: names, parameters, and a brace."""
_OPENED = compiled_on_use(r"(?:[A-Za-z_][\w:<>,]*+[\s*&]++)++(?P<name>[\w:~]++)\s*+\([^;={}\n]*[),]\s*+$")
"""One at the margin whose brace stands on a line of its own, or whose parameters go on in the next line."""
_ATTACHED = compiled_on_use(
    r"\s*+(?:@\w|#(?!\s*(?:if|include|define|endif|else|elif|pragma))|//|/\*|\*|template\s*<|\[\w)"
)
"""What belongs to the definition below it: decorators, attributes, comments."""
_NEUTRAL = compiled_on_use(
    r"[\s{}()\[\];,]*+$|\s*+(?:public|private|protected)\s*+:|#\s*+(?:if|else|elif|endif|define|include|pragma)"
)
"""What stands at the margin of a definition, and does not end it."""
_LONGEST = 400


class CodeLine(Struct, frozen=True, gc=False):
    """A line of source code."""

    begins: bool
    """A definition begins here: with what belongs to it, or itself."""
    enclosing: tuple[str, ...]
    """The lines of the definitions around it, the outermost first."""


def definition_name(line: str, following: str = "") -> str:
    """Return what a line of source code defines; empty if it defines nothing."""
    if len(line) > _LONGEST:
        return ""
    found = _NAMED.match(line) or _ASSIGNED.match(line) or _BRACED.match(line)
    if found is None and (following.strip() == "{" or line.rstrip().endswith(",")):
        found = _OPENED.match(line)
    return found["name"] if found else ""


def is_attached(line: str) -> bool:
    """Tell whether a line belongs to the definition below it, if there is one."""
    return _ATTACHED.match(line) is not None


def code_lines(lines: Sequence[str]) -> Iterator[CodeLine]:
    """Tell of each line what it stands in, by how far it is indented."""
    defining = [bool(definition_name(*lines[number : number + 2])) for number in range(len(lines))]
    beginnings: set[int] = set()
    first = 0  # of the lines that belong to what may be defined on the next
    for number, defines in enumerate(defining):
        if number and not is_attached(lines[number - 1]):
            first = number
        if defines:
            beginnings.add(first)
    around: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if not _NEUTRAL.match(line):
            while around and around[-1][0] >= indent:
                around.pop()
        yield CodeLine(number in beginnings, tuple(text for _, text in around))
        if defining[number]:
            around.append((indent, line.rstrip()))
