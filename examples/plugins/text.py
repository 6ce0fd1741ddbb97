"""Functions about text. In a folder given with `--plugins-dir`, a file of marked functions is all a plug-in needs."""

import re
import unicodedata

from antwort.provider import function


@function
def count_words(text: str) -> dict[str, int]:
    """Count the words, lines and characters of a text."""
    return {"words": len(text.split()), "lines": len(text.splitlines()), "characters": len(text)}


@function
def slug(title: str, max_length: int = 60) -> str:
    """Turn a title into a short name for a URL: lower-case ASCII letters and digits, joined by hyphens."""
    ascii_title = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", ascii_title.lower())
    return "-".join(words)[:max_length].rstrip("-")
