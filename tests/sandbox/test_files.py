"""Files of a folder, while somebody changes what is on the way to them."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from antwort.sandbox import ConfinedFiles, FileProblemError, MissingFileError, delete_tree, disk_usage

ROUNDS = 300


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file.txt").write_text("secret")
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


@contextlib.contextmanager
def swapping(own: Path) -> Iterator[None]:
    """Let the folder `x` become a link to the outside and a folder again, over and over."""
    (own / "real").mkdir()
    (own / "real" / "file.txt").write_text("mine")
    (own / "link").symlink_to(own.parent / "outside")
    stop = threading.Event()

    def swap() -> None:
        for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count()):
            for name in ("real", "link"):
                try:
                    (own / name).rename(own / "x")
                    (own / "x").rename(own / name)
                except OSError:  # somebody else has made a folder in this place
                    (own / "x").rename(own / f"other{number}{name}")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_what_is_read_is_never_from_outside(own: Path) -> None:
    with swapping(own):
        for _ in range(ROUNDS):
            with contextlib.suppress(FileProblemError), ConfinedFiles(own).open("x/file.txt") as file:
                assert file.read() == b"mine"


def test_a_file_that_is_not_kept_leaves_no_folders(own: Path) -> None:
    files = ConfinedFiles(own)
    files.create("a/b/c/file").drop()
    assert list(own.iterdir()) == []
    blocked = files.create("a/b/c/d/file")
    (own / "a" / "b").mkdir(parents=True)
    (own / "a" / "b" / "c").write_text("in the way")
    with pytest.raises(FileProblemError, match="no folder"):
        blocked.keep()
    blocked.drop()
    taken = files.create("e/f/file")
    (own / "e" / "f" / "file").mkdir(parents=True)
    with pytest.raises(FileProblemError, match="is a folder"):
        taken.keep()
    taken.drop()
    kept = files.create("x/y/file")
    kept.write(b"tea")
    kept.keep()
    found = sorted(str(path.relative_to(own)) for path in own.rglob("*"))
    assert found == ["a", "a/b", "a/b/c", "e", "e/f", "e/f/file", "x", "x/y", "x/y/file"]


def test_what_is_written_is_never_outside(own: Path) -> None:
    with swapping(own):
        for _ in range(ROUNDS):
            with contextlib.suppress(FileProblemError, OSError):
                new = ConfinedFiles(own).create("x/evil.txt")
                new.write(b"evil")
                new.keep()
    assert [path.name for path in (own.parent / "outside").iterdir()] == ["file.txt"]


def test_what_is_deleted_is_never_outside(own: Path) -> None:
    with swapping(own):
        for _ in range(ROUNDS):
            with contextlib.suppress(FileProblemError):
                ConfinedFiles(own).delete("x/file.txt")
    assert (own.parent / "outside" / "file.txt").read_text() == "secret"


def test_what_is_listed_is_never_outside(own: Path) -> None:
    (own.parent / "outside" / "theirs.txt").write_text("secret")
    with swapping(own):
        for _ in range(ROUNDS):
            assert all("theirs" not in file.path for file in ConfinedFiles(own).all())


def test_a_tree_is_deleted_without_what_its_links_point_to(own: Path) -> None:
    (own / "a" / "b").mkdir(parents=True)
    (own / "a" / "b" / "c").write_text("x")
    (own / "a" / "link").symlink_to(own.parent / "outside")
    (own / "closed").mkdir()
    (own / "closed" / "x").write_text("x")
    (own / "closed").chmod(0)
    delete_tree(own)
    assert not own.exists()
    assert (own.parent / "outside" / "file.txt").exists()
    delete_tree(own)


@pytest.mark.parametrize("closed", [0o000, 0o500, 0o300])
def test_a_tree_with_closed_folders_is_deleted(own: Path, closed: int) -> None:
    (own / "a" / "b" / "c").mkdir(parents=True)
    for folder in ("a/b/c", "a/b", "a", "."):
        (own / folder).chmod(closed)
    delete_tree(own)
    assert not own.exists()


def test_a_file_that_goes_does_not_hide_the_others(own: Path) -> None:
    """Somebody makes and deletes files all the time while they are counted."""
    for number in range(50):
        (own / f"kept{number}").write_text("x")
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for number in range(20):
                (own / f"gone{number}").touch()
            for number in range(20):
                (own / f"gone{number}").unlink()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert min(disk_usage(own, 1000).files for _ in range(ROUNDS)) >= 50
    finally:
        stop.set()
        thread.join()


def test_paths_are_relative_to_the_folder(own: Path) -> None:
    files = ConfinedFiles(own, ("/workspace",))
    for path in ("a.txt", "./a.txt", "/workspace/a.txt", "/workspace//a.txt", ".//./a.txt"):
        new = files.create(path)
        new.write(path.encode())
        new.keep()
        assert (own / "a.txt").read_text() == path
        assert files.about(path).path == "a.txt"
    assert [file.path for file in files.all()] == ["a.txt"]


@pytest.mark.parametrize(
    "path", ["", "/", ".", "..", "a/../b", "/etc/passwd", "/workspace2/x", "a\0b", "\ud800", "x" * 300, "x" * 5000]
)
def test_what_is_no_path_is_refused(own: Path, path: str) -> None:
    files = ConfinedFiles(own, ("/workspace",))
    use: Callable[[str], object]
    for use in (files.open, files.create, files.delete, files.about):
        with pytest.raises(FileProblemError):
            use(path)
    assert list(own.iterdir()) == []


def test_a_file_that_is_not_there_is_told_from_one_that_cannot_be_used(own: Path) -> None:
    (own / "folder").mkdir()
    for path in ("x", "folder/x", "y/x"):
        with pytest.raises(MissingFileError):
            ConfinedFiles(own).open(path)
    with pytest.raises(FileProblemError, match="is no file"):
        ConfinedFiles(own).open("folder")
    with pytest.raises(FileProblemError, match="is a folder"):
        ConfinedFiles(own).create("folder")


def test_a_file_that_is_dropped_leaves_what_was_there(own: Path) -> None:
    (own / "x").write_text("before")
    new = ConfinedFiles(own).create("x")
    new.write(b"after")
    new.drop()
    assert (own / "x").read_text() == "before"
    assert [path.name for path in own.iterdir()] == ["x"]


def test_a_file_is_kept_or_dropped_once(own: Path) -> None:
    """Whoever is cancelled drops what a thread may just have kept: what is open elsewhere by then is not closed."""
    dropped, kept = ConfinedFiles(own).create("dropped"), ConfinedFiles(own).create("kept")
    dropped.drop()
    kept.keep()
    with (own / "kept").open() as other, (own / "kept").open() as another:
        for new in (dropped, kept):
            new.keep()
            new.drop()
        assert other.read() + another.read() == ""
    assert [path.name for path in own.iterdir()] == ["kept"]


def test_a_file_whose_place_was_taken_is_told(own: Path) -> None:
    new = ConfinedFiles(own).create("x")
    (own / "x").mkdir()
    with pytest.raises(FileProblemError, match="is a folder"):
        new.keep()
    new.drop()
    assert [path.name for path in own.iterdir()] == ["x"]


def test_a_file_that_somebody_deletes_while_it_is_written_is_told(own: Path) -> None:
    new = ConfinedFiles(own).create("x")
    (temporary,) = own.iterdir()
    temporary.unlink()
    with pytest.raises(MissingFileError, match="'x' was deleted while it was written"):
        new.keep()
    new.drop()


def test_a_folder_that_is_deleted_while_a_file_is_written_is_told(own: Path) -> None:
    new = ConfinedFiles(own, what="workspace").create("x")
    delete_tree(own)
    with pytest.raises(MissingFileError, match="The workspace is not there any more"):
        new.keep()
    new.drop()
