"""The command line of the benchmarks: what is asked for is measured, what makes no sense is refused at once."""

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.__main__ import PARTS, Options, Part
from benchmarks.measure import Row
from benchmarks.peers.__main__ import main as compare_peers


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Put back what the command sets."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Options]]:
    """Measure nothing, but note what would have been."""
    noted: list[tuple[str, Options]] = []

    def noting(name: str) -> Callable[[Options], list[Row]]:
        def rows(options: Options) -> list[Row]:
            noted.append((name, options))
            return [Row(name, 1, "µs")]

        return rows

    for name, part in PARTS.items():
        monkeypatch.setitem(PARTS, name, Part(noting(name), part.method, part.slow))
    return noted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], "argument --rounds: must be a whole number, at least 1 (got '0')"),
        (["--rounds=-3"], "argument --rounds: must be a whole number, at least 1 (got '-3')"),
        (["--rounds", "few"], "argument --rounds: must be a whole number, at least 1 (got 'few')"),
        (["--only", "nothing"], "invalid choice: 'nothing'"),
        (["--only", "attacks", "--rounds", "1"], "argument --rounds: is for gateway, http, background, growth"),
        (["--seconds", "60"], "argument --seconds: is for endurance, everything; add --only endurance, or --full"),
        (["--only", "http", "--plot", "images"], "argument --plot: is for growth; add --only growth, or --full"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_measured(
    arguments: Sequence[str], words: str, asked: list[tuple[str, Options]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        benchmarks.main(arguments)
    assert words in capsys.readouterr().err
    assert not asked


def test_slow_parts_run_with_the_large_counts_or_when_they_are_asked_for(
    asked: list[tuple[str, Options]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmarks.main(["--rounds", "3"]) == 0
    quick = ["dispatch", "gateway", "http", "json", "mcp"]
    assert [(name, options.rounds) for name, options in asked] == [(name, 3) for name in quick]
    asked.clear()
    assert benchmarks.main(["--full"]) == 0
    assert [name for name, _ in asked] == list(PARTS)
    capsys.readouterr()
    assert benchmarks.main(["--only", "file_search"]) == 0
    shown, told = capsys.readouterr()
    assert "file_search  1.00 µs" in shown
    assert told == "measuring file_search …\n"


def test_figures_of_peers_that_cannot_be_read_are_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "peers.json"
    wrong.write_text("no figures")
    for file in (wrong, tmp_path / "absent.json"):
        assert compare_peers(["--from", str(file)]) == 1
        assert capsys.readouterr().err.startswith(f"benchmarks: {file} is not what --json writes: ")
    with pytest.raises(SystemExit, match="2"):
        compare_peers(["--rounds", "0"])


def test_what_figures_of_peers_cannot_be_written_into_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "absent.md"
    assert compare_peers(["--markdown", str(page)]) == 1
    assert capsys.readouterr().err.startswith(f"benchmarks: {page} cannot be read: ")
    page.write_text("no marks")
    assert compare_peers(["--markdown", str(page)]) == 1
    assert capsys.readouterr().err.startswith("benchmarks: the page has no part between ")


@pytest.mark.parametrize("option", [["--rounds", "3"], ["--only", "antwort"]])
def test_figures_that_are_there_are_not_measured_in_another_way(
    option: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        compare_peers(["--from", "peers.json", *option])
    assert "--from: measures nothing" in capsys.readouterr().err


def test_a_folder_for_plots_that_cannot_be_made_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert benchmarks.main(["--only", "growth", "--plot", str(file)]) == 1
    assert f"benchmarks: {file} cannot be a folder for plots: " in capsys.readouterr().err
