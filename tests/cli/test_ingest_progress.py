"""What `antwort ingest` shows while it works."""

import io
from pathlib import Path

import pytest
from typing_extensions import override

from antwort.cli.folder_upload import FileReport, LocalFile, StoredFile
from antwort.cli.ingest import ShownProgress

LARGE = "large.pdf: 100 of 150 chunks, 40 pages"


class Terminal(io.StringIO):
    """A terminal that remembers all that it has shown."""

    @override
    def isatty(self) -> bool:
        return True

    @property
    def pictures(self) -> list[str]:
        return self.getvalue().split("\r\x1b[K")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(tmp_path: Path) -> list[LocalFile]:
    for name, size in (("large.pdf", 3000), ("small.md", 1000), ("same.md", 500)):
        (tmp_path / name).write_bytes(b"x" * size)
    return [LocalFile(tmp_path / name, name) for name in ("large.pdf", "small.md", "same.md")]


def state(phase: str = "embedding", *, embedded: int = 0, chunks: int | None = None) -> StoredFile:
    pages = None if chunks is None else 40
    return StoredFile(
        "file-1", "large.pdf", "", "in_progress", phase=phase, pages=pages, chunks=chunks, embedded=embedded
    )


def test_a_terminal_has_a_bar_with_rate_time_left_and_the_file_that_is_worked_on(
    files: list[LocalFile], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal()
    shown = ShownProgress(files, terminal, now=clock)
    shown.see(files[0], state("reading"))
    clock.now = 1.0
    shown.end(FileReport("same.md", "unchanged", "file-3"))
    clock.now = 10.0
    shown.see(files[0], state(embedded=100, chunks=150))
    clock.now = 20.0
    shown.end(FileReport("large.pdf", "completed", "file-1", pages=40, chunks=150))
    clock.now = 21.0
    shown.end(FileReport("gone.md", "removed", "file-4"))
    shown.close()
    assert terminal.pictures[1:] == [
        "[------------------------] 0 of 3 files; large.pdf: reading",
        "[------------------------] 1 of 3 files; large.pdf: reading",
        f"[############------------] 1 of 3 files, 100 chunks, 10.0 a second, 10 s left; {LARGE}",
        "[##################------] 2 of 3 files, 150 chunks, 7.5 a second, 7 s left",
        "",
    ]


def test_a_terminal_is_not_drawn_more_often_than_one_can_see(files: list[LocalFile], clock: Clock) -> None:
    terminal = Terminal()
    shown = ShownProgress(files, terminal, now=clock)
    for _ in range(100):
        clock.now += 0.001
        shown.see(files[0], state("reading"))
    assert len(terminal.pictures) == 2


def test_elsewhere_there_is_a_line_now_and_then(files: list[LocalFile], clock: Clock) -> None:
    out = io.StringIO()
    shown = ShownProgress(files, out, now=clock)
    for number in range(65):
        clock.now = float(number)
        shown.see(files[0], state(embedded=number, chunks=150))
    shown.close()
    lines = out.getvalue().splitlines()
    assert lines[0] == (
        "antwort: 0 of 3 files, 30 chunks, 1.0 a second, 3 min left; large.pdf: 30 of 150 chunks, 40 pages"
    )
    assert len(lines) == 2


@pytest.mark.parametrize(("chunks", "left"), [(2, "30 s"), (7, "3 min"), (250, "2 h 4 min")])
def test_the_time_left_is_told_as_one_says_it(files: list[LocalFile], clock: Clock, chunks: int, left: str) -> None:
    out = io.StringIO()
    shown = ShownProgress(files[:1], out, now=clock)
    clock.now = 30.0
    shown.see(files[0], state(embedded=1, chunks=chunks))
    assert f" {left} left" in out.getvalue()


def test_no_time_left_is_guessed_from_small_files_that_came_first(tmp_path: Path, clock: Clock) -> None:
    for name, size in (("note.md", 40), ("scan.pdf", 10_000)):
        (tmp_path / name).write_bytes(b"x" * size)
    out = io.StringIO()
    note, scan = (LocalFile(tmp_path / name, name) for name in ("note.md", "scan.pdf"))
    shown = ShownProgress([note, scan], out, now=clock)
    shown.see(note, state(embedded=1, chunks=1))
    shown.end(FileReport("note.md", "completed", "file-1", chunks=1))
    clock.now = 30.0
    shown.see(scan, state("reading"))
    assert out.getvalue() == "antwort: 1 of 2 files, 1 chunk, 0.0 a second; scan.pdf: reading\n"


def test_what_names_of_files_could_do_to_a_terminal_is_not_done(tmp_path: Path, clock: Clock) -> None:
    file = LocalFile(tmp_path / "gone", "\x1b[2Jbad.md")
    terminal = Terminal()
    ShownProgress([file], terminal, now=clock).see(file, state("reading"))
    assert "\x1b[2J" not in terminal.getvalue()
