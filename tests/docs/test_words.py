"""The repository speaks of itself alone: no paths of a machine it was written on, no hosts it was built with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import docs

NOT_OURS = {
    ".git",
    ".venv",
    ".venv-searxng",
    ".venv-moto",
    ".venv-peers",
    "node_modules",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    ".antwort",
}
BUILT = {"dist", "build", "data"}

# Put together here, so that this file can be searched like any other.
FORBIDDEN = ["/".join(parts) for parts in (("", "work", ""), ("", "tmp", "bash"), ("shared", ""))] + [
    ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("deb", "debian", "org"))
]


def files(folder: Path = docs.ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in NOT_OURS or path.suffix == ".egg-info" or (folder == docs.ROOT and path.name in BUILT):
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path


@pytest.mark.parametrize("word", FORBIDDEN)
def test_no_file_names_a_machine_or_a_host(word: str) -> None:
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in files()}
    assert len(texts) > 100
    assert [str(path.relative_to(docs.ROOT)) for path, text in texts.items() if word in text] == []
