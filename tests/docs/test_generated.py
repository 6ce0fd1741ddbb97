"""What is generated in the pages is current, and the generator notices when it is not."""

from pathlib import Path

import pytest
from scripts import docs


@pytest.mark.parametrize("page", docs.pages(), ids=lambda page: page.name)
def test_a_page_is_current(page: Path) -> None:
    diff = docs.difference(page)
    assert not diff, f"run 'make docs':\n{diff}"


def test_an_outdated_part_is_written_anew() -> None:
    page = "before\n<!-- generated: function errors -->\nold\n<!-- end -->\nafter\n"
    new = docs.with_parts(page)
    assert "old" not in new
    assert "`invalid_arguments`" in new
    assert new.startswith("before\n")
    assert new.endswith("<!-- end -->\nafter\n")
    assert docs.with_parts(new) == new


def test_the_endpoints_of_a_provider_are_written_with_their_limits() -> None:
    text = docs.part("api of file_search")
    assert "### `POST /v1/vector_stores/{vector_store_id}/search`" in text
    for limit in (
        "| `query` (required) | text, up to 4096 characters or list of texts, 1 to 16 |",
        "| `max_num_results` | integer, 1 to 50 | How many results at most; 10 if not given. |",
        "| `ranking_options.hybrid_search.text_weight` (required) | number, at least 0 |",
        "| `points[].text` (required) | text, 1 to 100000 characters |",
        "| `points[].attributes` | object, up to 16 keys of up to 64 characters | Up to 16 pairs for filters: texts ",
    ):
        assert limit in text
    assert "/v1/responses" not in text


def test_a_part_nobody_can_generate_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        docs.with_parts("<!-- generated: nonsense -->\n<!-- end -->\n")


def test_a_session_is_recorded_with_the_files_before_it() -> None:
    page = "```yaml\n# a.yaml\nserver:\n```\n\n```console\n$ cat a.yaml \\\n  b.yaml\nold\n$ exit 3\n```\n"
    new = docs.with_sessions(page)
    assert "$ cat a.yaml \\\n  b.yaml\n# a.yaml\nserver:\ncat: b.yaml: No such file" in new
    assert "old" not in new
    assert new.endswith("$ exit 3\n```\n")


def test_a_session_that_is_not_run_stays() -> None:
    page = "<!-- not run: it is random -->\n```console\n$ echo new\nold\n```\n"
    assert docs.with_sessions(page) == page


@pytest.mark.parametrize("command", ["pwd", "python3 -c 'raise ValueError'"])
def test_a_session_that_names_the_machine_or_crashes_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match="not for a page"):
        docs.with_sessions(f"```console\n$ {command}\n```\n")


def test_a_server_in_a_session_is_reached_at_the_port_that_is_shown() -> None:
    session = ("antwort serve", "curl -s http://127.0.0.1:8080/readyz", "antwort serve --host nowhere.invalid")
    recorded = docs.with_sessions("```console\n" + "".join(f"$ {command}\n" for command in session) + "```\n")
    assert "Listening on http://127.0.0.1:8080\n$ curl" in recorded
    assert '{"status":"ready"' in recorded
    assert "antwort: server.host: Other machines can reach 'nowhere.invalid'" in recorded
