"""Questions that nobody here wrote, with the passages that answer them: the FAQs of packages of Debian.

They are fetched when they are measured, and nothing of them is kept here. Of a FAQ the questions are what is asked, and
its text without them is what is searched, so that an answer is found by what it says. A document is a chapter, or a
page, as plain text; where in it each answer stands is known.
"""

import gzip
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import BenchmarkError

_PATIENCE = 300
_LEAST = 40
"""Characters of an answer, at least: others only name another question."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A question, and where in its document the answer stands."""

    question: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FaqDocument:
    """A text in which questions are answered that are not in it."""

    title: str
    text: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Faq:
    """Where questions and answers are, and what may be done with them."""

    name: str
    package: str
    licence: str
    path: str
    read: Callable[[str], Iterator[tuple[str, str]]]
    """Yields what a file says in order: the questions and, behind each, what answers it; the title is without one."""


def _reduced(text: str) -> str:
    """Return paragraphs with one empty line between them."""
    return "\n\n".join(part.rstrip() for part in re.split(r"\n\s*\n", text.strip("\n")) if part.strip())


def _of_restructured_text(text: str) -> Iterator[tuple[str, str]]:
    """Read a page of Python's FAQ."""
    found = re.split(r"^(\S.*(?:\n\S.*)?)\n(-{4,}|={4,})\n", text, flags=re.MULTILINE)
    for title, raw in zip(found[1::3], found[3::3], strict=True):
        body = re.sub(r"^\.\. .*\n(?:\s+.*\n|\n)*?(?=\S|\Z)", "", raw, flags=re.MULTILINE)
        yield " ".join(title.split()), re.sub(r":\w+:`([^`<]*)(?:<[^>]*>)?`", r"\1", body)


def _of_pod(text: str) -> Iterator[tuple[str, str]]:
    """Read a page of Perl's FAQ."""
    for part in re.split(r"^=head2 ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        body = re.sub(r"^=head1 .*", "", body, flags=re.MULTILINE | re.DOTALL)
        body = re.sub(r"^=\w+.*$", "", body, flags=re.MULTILINE)
        yield _plain(title), _plain(body)


def _plain(pod: str) -> str:
    pod = re.sub(r"X<[^>]*>", "", pod)
    found = re.sub(r"[BCFIL]<+ ?([^<>|]*?)(?:\|[^<>]*?)? ?>+", r"\1", pod)
    return found.replace("E<gt>", ">").replace("E<lt>", "<")


def _of_debian(text: str) -> Iterator[tuple[str, str]]:
    """Read Debian's FAQ: a text with a table of contents in front."""
    heading = re.compile(r"^\d+\.\d+\. +(\S.*(?:\n\S.*)*)\n", re.MULTILINE)
    text = text.replace("\u00a0", " ")
    whole = text[text.rindex("\nChapter 1. ") :]
    for part in re.split(r"^Chapter \d+\. ", whole, flags=re.MULTILINE)[1:]:
        found = heading.split(re.sub(r"^Table of Contents\n.*?\n\n(?=\d)", "", part, flags=re.MULTILINE | re.DOTALL))
        yield "", found[0].partition("\n")[0]
        for title, body in zip(found[1::2], found[2::2], strict=True):
            yield " ".join(title.split()), re.sub(r"^ {4}", "", body, flags=re.MULTILINE)


FAQS = (
    Faq("Python's FAQ", "python3-doc", "PSF-2.0", "**/_sources/faq/*.rst.txt", _of_restructured_text),
    Faq("Perl's FAQ", "perl-doc", "Artistic-1.0-Perl OR GPL-1.0-or-later", "**/pod/perlfaq[1-9].pod", _of_pod),
    Faq("Debian's FAQ", "debian-faq", "GPL-2.0-or-later", "**/debian-faq.en.txt.gz", _of_debian),
)


def faq_documents(faq: Faq, folder: Path) -> list[FaqDocument]:
    """Fetch a FAQ into a folder, unless it is there, and read it."""
    package = folder / faq.package
    if not package.is_dir():
        _fetch(faq.package, package)
    found: list[FaqDocument] = []
    for file in sorted(package.glob(faq.path)):
        content = file.read_bytes()
        text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
        found += documents_of(file.name.partition(".")[0], faq.read(text))
    if sum(len(one.answers) for one in found) < 50:
        raise BenchmarkError(f"the package {faq.package} has not the FAQ that it should have")
    return found


def documents_of(title: str, parts: Iterable[tuple[str, str]]) -> Iterator[FaqDocument]:
    """Put documents together of questions with their answers; what has no question begins a new one."""
    text, answers = "", list[Answer]()
    for question, body in parts:
        answer = _reduced(body)
        if not question:
            if answers:
                yield FaqDocument(title, text, tuple(answers))
            text, title = "", answer
            answers = []
        elif len(answer) >= _LEAST:
            start = len(text)
            text += f"{answer}\n\n"
            if question.endswith(("?", "?!")):
                answers.append(Answer(question, start, start + len(answer)))
    if answers:
        yield FaqDocument(title, text, tuple(answers))


def _fetch(package: str, folder: Path) -> None:
    """Unpack a package of Debian; BenchmarkError where there is none."""
    folder.mkdir(parents=True)
    try:
        needed = _said("apt-cache", "depends", "--no-recommends", "--no-suggests", package, folder=folder)
        names = [package, *(name for name in re.findall(r"Depends: (\S+)", needed) if name.endswith("-doc"))]
        _said("apt-get", "download", "-qq", *names, folder=folder)
        for file in folder.glob("*.deb"):
            _said("dpkg-deb", "--extract", file.name, ".", folder=folder)
    except (OSError, subprocess.SubprocessError) as error:
        folder.rename(folder.with_name(f"{folder.name}.failed"))
        raise BenchmarkError(f"the package {package} of Debian cannot be fetched: {error}") from error


def _said(*command: str, folder: Path) -> str:
    return subprocess.run(
        command, cwd=folder, check=True, text=True, timeout=_PATIENCE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout
