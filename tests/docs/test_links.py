"""Links between pages lead somewhere."""

import re
from pathlib import Path

import pytest
from scripts import docs

PAGES = [*docs.pages(), *(docs.ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"))]


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)) if "://" not in link]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(docs.ROOT), f"{link} leaves the repository"
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (docs.ROOT / "README.md").read_text()
    assert [page for page in PAGES[1:] if f"({page.relative_to(docs.ROOT).as_posix()})" not in readme] == []
