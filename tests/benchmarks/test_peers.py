"""The comparison with other gateways: its table, its plot, and that no figure is told of what was not done."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import httpx
import msgspec
import pytest

from benchmarks.gateway import Bench
from benchmarks.measure import BenchmarkError
from benchmarks.peers.comparing import Hall, cpu_rows, idle_rows, open_hall
from benchmarks.peers.environments import failure
from benchmarks.peers.gateways import JSON_REQUEST, SERVER_CALL, STORED, Gateway, Site, antwort, gateways, reference
from benchmarks.peers.lines import lines
from benchmarks.peers.plot import longest_bar, plotted
from benchmarks.peers.results import Column, Comparison, Figure, Row, shown
from benchmarks.peers.tables import END, START, markdown, replaced, terminal
from benchmarks.processes import at_fixed_addresses

ADDR_NO_RANDOMIZE = 0x0040000  # of personality(2)
SVG = "{http://www.w3.org/2000/svg}"
COMPARISON = Comparison(
    date="2026-01-02",
    machine="2 cores",
    rounds=3,
    columns=[
        Column("R"),
        Column("antwort"),
        Column("quick", "1.2", note="does less"),
        Column("absent", "0.9", missing="has no wheel"),
    ],
    rows=[
        Row("JSON request", "µs", {"R": Figure(50.04), "antwort": Figure(150.6), "quick": Figure(1234.5)}),
        Row(
            "stored & kept",
            "µs",
            {"R": Figure(note="keeps nothing"), "antwort": Figure(9.876), "quick": Figure(5.0, "in memory")},
        ),
    ],
)


@pytest.fixture
def hall() -> Iterator[Hall]:
    with open_hall() as hall:
        yield hall


def test_the_table_has_a_column_for_every_gateway_and_a_note_for_every_gap() -> None:
    about, _, *lines = terminal(COMPARISON).split("\n")
    assert about.startswith("2026-01-02, 2 cores; medians of 3 interleaved rounds.")
    assert lines == [
        "                       R  antwort  quick 1.2 [1]  absent 0.9 [2]",
        "JSON request, µs    50.0      151          1,234               \N{EN DASH}",
        "stored & kept, µs  \N{EN DASH} [3]     9.88       5.00 [4]               \N{EN DASH}",
        "",
        "[1] does less",
        "[2] has no wheel",
        "[3] keeps nothing",
        "[4] in memory",
    ]


def test_the_page_has_the_least_figure_in_bold_that_is_not_that_of_r() -> None:
    lines = markdown(COMPARISON, plot="images/a.svg").split("\n")
    assert lines[:6] == [
        "![CPU time, memory and start of each gateway](images/a.svg)",
        "",
        "|  | R | antwort | quick 1.2 [1] | absent 0.9 [2] |",
        "|---|---:|---:|---:|---:|",
        "| JSON request, µs | 50.0 | **151** | 1,234 | \N{EN DASH} |",
        "| stored & kept, µs | \N{EN DASH} [3] | 9.88 | **5.00** [4] | \N{EN DASH} |",
    ]
    assert lines[-1] == "[4] in memory."


def test_without_r_the_first_gateway_counts_as_well() -> None:
    row = Row("JSON request", "µs", {"antwort": Figure(150.6), "quick": Figure(1234.5)})
    some = msgspec.structs.replace(COMPARISON, columns=COMPARISON.columns[1:3], rows=[row])
    assert "| JSON request, µs | **151** | 1,234 |" in markdown(some).split("\n")


def test_only_the_part_between_the_marks_of_a_page_is_replaced() -> None:
    page = f"before\n{START}\nold\n{END}\nafter\n<!-- generated: else -->\nkept\n{END}\n"
    assert replaced(page, "new") == page.replace("old", "new")
    with pytest.raises(BenchmarkError, match="no part between <!-- measured: peers -->"):
        replaced("a page without marks", "new")


def test_the_plot_has_a_panel_for_each_row_and_a_bar_for_each_figure() -> None:
    picture = ElementTree.fromstring(plotted(COMPARISON))
    first, second = picture.iter(f"{SVG}g")
    assert [bar.get("class") for bar in first.iter(f"{SVG}path")] == ["bar", "bar own", "bar"]
    texts = [text.text for text in second.iter(f"{SVG}text")]
    assert texts == ["stored & kept, µs", "R", "\N{EN DASH}", "antwort", "9.88", "quick", "5.00"]
    assert len(list(second.iter(f"{SVG}path"))) == 2


def test_a_bar_is_broken_only_if_it_would_leave_nothing_to_see_of_the_others() -> None:
    first, second = ElementTree.fromstring(plotted(COMPARISON)).iter(f"{SVG}g")
    pieces = [[bar.get("d", "").count("M") for bar in panel.iter(f"{SVG}path")] for panel in (first, second)]
    assert pieces == [[1, 1, 2], [1, 1]]


@pytest.mark.parametrize(
    ("values", "longest"),
    [([1, 2, 12], 12), ([1, 2, 13], 3.2), ([1, 2, 13, 100], 3.2), ([5], 5), ([], 1), ([0, 0], 1)],
)
def test_the_longest_bar_is_the_largest_figure_or_more_than_the_largest_that_is_no_outlier(
    values: list[float], longest: float
) -> None:
    assert longest_bar(values) == longest


def test_figures_survive_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(COMPARISON), type=Comparison) == COMPARISON


@pytest.mark.parametrize(
    ("value", "text"), [(0.123, "0.12"), (9.87, "9.87"), (98.76, "98.8"), (987.6, "988"), (9876.5, "9,876")]
)
def test_figures_have_the_digits_that_mean_something(value: float, text: str) -> None:
    assert shown(value) == text


def test_why_a_peer_cannot_be_had_is_told_in_a_few_words() -> None:
    def told(log: str) -> str:
        return failure("peer", "peer[all]==1.2", log)

    assert told("ERROR: No matching distribution found for peer[all]==1.2").startswith(
        "peer 1.2 has no wheel on PyPI for"
    )
    assert told("ERROR: No matching distribution found for x>=3") == "peer[all]==1.2 needs x>=3, which is not on PyPI"
    assert told("WARNING: slow\nERROR: no route to host") == "peer[all]==1.2: ERROR: no route to host"
    assert told("") == "peer[all]==1.2: pip failed"


def test_every_peer_is_pinned() -> None:
    assert [(one.name, "==" in one.requirement) for one in gateways()] == [
        ("R", False),
        ("antwort", False),
        ("agentic-api", True),
        ("smg", True),
        ("litellm", True),
        ("litellm-passing", True),
    ]


def test_litellm_translates_as_antwort_does_and_passes_on_as_smg_does(tmp_path: Path) -> None:
    site = Site("http://127.0.0.1:1", "http://127.0.0.1:2/mcp", 3, 4, tmp_path)
    found = {}
    for gateway in gateways():
        if gateway.package:
            command = gateway.command(site, tmp_path)
            written = json.loads(Path(command[command.index("--config") + 1]).read_text())
            found[gateway.name] = {one["litellm_params"]["use_chat_completions_api"] for one in written["model_list"]}
    assert found == {"litellm": {True}, "litellm-passing": {False}}
    translating, passing = (one for one in gateways() if one.package == "litellm")
    smg = next(one for one in gateways() if one.name == "smg")
    assert passing.remarks[""] in smg.remarks[""]
    assert passing.requirement == translating.requirement


BROKEN = Gateway("broken", lambda *_: (sys.executable, "-c", "raise SystemExit('no room')"))


def test_gateways_are_measured_and_gaps_have_their_reason(hall: Hall) -> None:
    boasting = replace(reference(), name="boasting", missing={})  # a twin of R that is said to store
    work = [line for line in lines() if line.what in {JSON_REQUEST, STORED}]
    had = [(gateway, Path()) for gateway in (reference(), boasting, BROKEN)]
    plain, stored = cpu_rows(hall, had, work, rounds=1)
    assert (plain.what, plain.unit) == (JSON_REQUEST, "µs")
    assert all((plain.figures[name].value or 0) > 0 for name in ("R", "boasting"))
    assert plain.figures["broken"] == Figure(note="does not start: it ended: no room")
    assert stored.figures["R"] == Figure(note="R keeps nothing")
    assert stored.figures["boasting"] == Figure(note="does not keep responses")


def test_every_gateway_is_started_at_fixed_addresses_as_r_is(hall: Hall) -> None:
    told = hall.bench.folder / "personality"
    program = f"open({str(told)!r}, 'w').write(open('/proc/self/personality').read())"
    telling = Gateway("telling", lambda *_: (sys.executable, "-c", program))
    with pytest.raises(BenchmarkError, match="it ended"), hall.started(telling, Path()):
        pass
    assert bool(int(told.read_text(), 16) & ADDR_NO_RANDOMIZE) == bool(at_fixed_addresses())


def test_antwort_executes_the_call_that_the_row_is_about(hall: Hall) -> None:
    work = [line for line in lines() if line.what == SERVER_CALL]
    (row,) = cpu_rows(hall, [(antwort(), Path())], work, rounds=1)
    assert (row.figures["antwort"].value or 0) > 0


def test_starting_and_resting_are_measured(hall: Hall) -> None:
    memory, start = idle_rows(hall, [(reference(), Path()), (BROKEN, Path())], repeat=1)
    assert (memory.unit, start.unit) == ("MB", "s")
    assert (memory.figures["R"].value or 0) > 5
    assert (start.figures["R"].value or 0) > 0
    assert start.figures["broken"] == Figure(note="does not start")


def test_the_mock_streams_in_the_shape_of_the_responses_api(bench: Bench) -> None:
    body = {"model": "burst-2", "stream": True, "input": "Hello"}
    *frames, done, rest = httpx.post(f"{bench.mock_url}/responses", json=body).text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    events = [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == [" word1", " word2"]
    response = events[-1]["response"]
    assert (events[-1]["type"], response["status"]) == ("response.completed", "completed")
    assert response["output"][0]["content"][0]["text"] == " word1 word2"


@pytest.mark.parametrize("path", ["responses", "chat/completions"])
def test_the_mock_calls_the_function_it_is_offered(bench: Bench, path: str) -> None:
    tools = [{"type": "function", "name": "look_up", "function": {"name": "look_up"}}]
    answer = httpx.post(f"{bench.mock_url}/{path}", json={"model": "call", "tools": tools}).json()
    text = json.dumps(answer)
    assert '"name": "look_up"' in text
    again = {"model": "call", "tools": tools, "input": [{"type": "function_call_output"}], "tool_call_id": "1"}
    assert "Paris" in httpx.post(f"{bench.mock_url}/{path}", json=again).text


def test_responses_of_the_mock_have_ids_of_their_own(bench: Bench) -> None:
    ids = {httpx.post(f"{bench.mock_url}/responses", json={"model": "json"}).json()["id"] for _ in range(3)}
    assert len(ids) == 3
