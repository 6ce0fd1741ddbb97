"""Links between pages lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

from scripts import docs

PAGES = [*docs.pages(), *(docs.ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"))]


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)) if "://" not in link]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(docs.ROOT):
            yield f"{page.name}: {link} leaves the repository"
        elif not target.exists():
            yield f"{page.name}: {link} leads nowhere"
        elif anchor and anchor not in anchors(target):
            yield f"{page.name}: {link}: there is no such heading"


def test_relative_links_resolve() -> None:
    assert [link for page in PAGES for link in broken_links(page)] == []


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (docs.ROOT / "README.md").read_text()
    assert [page for page in PAGES[1:] if f"({page.relative_to(docs.ROOT).as_posix()})" not in readme] == []
