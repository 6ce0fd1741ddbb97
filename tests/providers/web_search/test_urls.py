import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.providers.web_search.options import domain, normalised, within


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.org", "https://example.org/"),
        ("HTTPS://Example.ORG:443/Path", "https://example.org/Path"),
        ("http://example.org:80/", "http://example.org/"),
        ("http://example.org:8080/", "http://example.org:8080/"),
        ("https://example.org./a", "https://example.org/a"),
        ("https://example.org/a#part", "https://example.org/a"),
        ("https://example.org/?utm_source=x&q=1&gclid=2", "https://example.org/?q=1"),
        ("https://example.org/?utm_medium=x", "https://example.org/"),
        ("https://example.org/?q=a%20b&c=%2F", "https://example.org/?q=a%20b&c=%2F"),
        ("https://example.org/a b", "https://example.org/a%20b"),
        ("https://example.org/grün", "https://example.org/gr%C3%BCn"),
        ("  https://example.org/  ", "https://example.org/"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        ("ftp://example.org/", None),
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
        ("https://", None),
        ("https://user:pw@example.org/", None),
        ("https://exa mple.org/", None),
        ("https://example.org:port/", None),
        ("https://[::1", None),
        ("https://example.org/\r\nHost: x", None),
        ("https://example.org\\@a.org/", None),
        ("", None),
    ],
)
def test_a_url_has_one_spelling(url: str, expected: str | None) -> None:
    assert normalised(url) == expected
    if expected is not None:
        assert normalised(expected) == expected


@given(st.text())
def test_whatever_is_no_url_is_none(text: str) -> None:
    url = normalised(text)
    assert url is None or url.startswith(("http://", "https://"))


@given(st.from_regex(r"https?://[a-z]{1,5}\.org(:[0-9]{1,4})?/[ -~]{0,20}", fullmatch=True))
def test_the_one_spelling_stays(text: str) -> None:
    url = normalised(text)
    assert url is None or normalised(url) == url


@pytest.mark.parametrize(
    ("host", "domains", "expected"),
    [
        ("example.org", ["example.org"], True),
        ("www.Example.org.", ["example.org"], True),
        ("notexample.org", ["example.org"], False),
        ("example.org", ["www.example.org"], False),
        ("example.org.evil.com", ["example.org"], False),
        ("a.b", ["c", "b"], True),
        ("a.b", [], False),
    ],
)
def test_a_domain_has_those_below_it(host: str, domains: list[str], expected: bool) -> None:
    assert within(host, domains) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Example.ORG", "example.org"),
        (" *.example.org ", "example.org"),
        (".example.org", "example.org"),
        ("localhost", "localhost"),
        ("https://example.org", None),
        ("example.org/path", None),
        ("", None),
        ("a..b", None),
    ],
)
def test_a_domain_is_read(text: str, expected: str | None) -> None:
    assert domain(text) == expected
