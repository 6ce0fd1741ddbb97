"""The harness measures what it says, tells what is missing, and leaves nothing running."""

import os
import sys
from dataclasses import replace

import pytest

from benchmarks.__main__ import table
from benchmarks.gateway import Bench, Costs, Target, Workload, cpu_rows, measure_costs
from benchmarks.idle import idle_rows, stream_rows
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import LISTENING, ServerExitError, at_fixed_addresses, available_cores, running

ASK = {"model": "json", "input": "Hello"}
WHOLE = Workload("JSON request", ASK, requests=20, bar=4)
STORED = Workload("JSON request, stored", {**ASK, "store": True}, requests=20, bar=9, against="JSON request")
STREAMED = Workload("burst event", {**ASK, "model": "burst-50", "stream": True}, requests=4, bar=2.5, events=50)

SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_error({status})
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("Listening on http://127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
"""

# The child has used half a second of CPU by the time the parent listens; the parent itself does next to nothing.
PARENT = """
import subprocess, sys
work = "import time, sys\\nwhile time.process_time() < 0.5: pass\\nprint(flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("Listening on http://127.0.0.1:1", flush=True)
child.wait()
"""


def answering(status: int) -> Target:
    return Target("other", (sys.executable, "-c", SERVER.format(status=status)))


def test_figures_and_ratios_are_taken_for_r_and_for_each_target(bench: Bench, reference: Target) -> None:
    rows = cpu_rows(bench, [replace(reference, name="twin")], [WHOLE, STORED, STREAMED], rounds=1)
    assert [(row.what, row.unit, row.bar) for row in rows] == [
        ("R: JSON request", "µs", None),
        ("twin: JSON request", "µs", None),
        ("twin: JSON request, against R", "\N{MULTIPLICATION SIGN} R", 4),
        ("twin: JSON request, stored", "µs", None),
        ("twin: JSON request, stored, against R", "\N{MULTIPLICATION SIGN} R", 9),
        ("R: burst event", "µs", None),
        ("twin: burst event", "µs", None),
        ("twin: burst event, against R", "\N{MULTIPLICATION SIGN} R", 2.5),
    ]
    assert all(row.value is not None and row.value > 0 for row in rows)


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    costs = Costs({("R", "work"): [1.0, 2.0, 4.0], ("ours", "work"): [3.0, 4.0, 20.0], ("ours", "other"): []})
    assert costs.median(("ours", "work")) == 4
    assert costs.ratio(("ours", "work"), ("R", "work")) == 3
    assert costs.ratio(("ours", "other"), ("R", "work")) is None
    assert costs.median(("theirs", "work")) is None


def test_what_something_costs_beyond_something_else_is_taken_from_the_same_round() -> None:
    costs = Costs(
        {("R", "work"): [1.0, 2.0, 4.0], ("ours", "call"): [2.0, 2.0, 2.0], ("ours", "more"): [4.0, 8.0, 6.0]}
    )
    assert costs.ratio(("ours", "more"), ("R", "work"), beyond=("ours", "call")) == 2


def test_what_is_measured_side_by_side_is_compared_there() -> None:
    apart = {("R", "work"): [1.0], ("ours", "work"): [4.0], ("ours", "other"): [9.0]}
    costs = Costs(apart, [Costs({("R", "work"): [2.0], ("ours", "work"): [4.0]})])
    assert costs.ratio(("ours", "work"), ("R", "work")) == 2
    assert costs.ratio(("ours", "other"), ("R", "work")) == 9
    assert costs.ratio(("ours", "other"), ("R", "work"), beyond=("ours", "work")) == 5
    assert costs.median(("R", "work")) == 1


def test_what_is_compared_is_asked_side_by_side_as_often_as_alone(bench: Bench, reference: Target) -> None:
    twins = [reference, replace(reference, name="twin")]
    compared = [(target.name, WHOLE.name) for target in twins]
    asked = bench.stats()["asked"]
    costs = measure_costs(bench, twins, [replace(WHOLE, requests=40)], rounds=2, together=[compared])
    (beside,) = costs.together
    assert {place: len(values) for place, values in beside.rounds.items()} == dict.fromkeys(compared, 2)
    assert bench.stats()["asked"] == asked + 2 * (1 + 3 * 40 + 2 * 40)  # each start is tried out with one request


def test_a_target_gets_only_the_workloads_it_names_and_each_is_prepared_once(bench: Bench, reference: Target) -> None:
    made = []

    def prepare(_: object, target: Target) -> dict[str, str]:
        made.append(target.name)
        return {"input": "Hello again"}

    targets = [replace(reference, only=["JSON request"]), replace(reference, name="other", only=["burst event"])]
    costs = measure_costs(bench, targets, [replace(WHOLE, prepare=prepare), STREAMED], rounds=2)
    assert {place: len(values) for place, values in costs.rounds.items()} == {
        ("R", "JSON request"): 2,
        ("other", "burst event"): 2,
    }
    assert made == ["R"]


@pytest.mark.parametrize(
    "target",
    [answering(404), Target("other", (sys.executable, "-c", "raise SystemExit(2)"))],
    ids=["no such route", "no such option"],
)
def test_a_target_that_is_not_ready_is_told_without_failing(
    bench: Bench, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    _, row = cpu_rows(bench, [target], [WHOLE], rounds=1)
    assert row == Row("other: JSON request, against R", None, "\N{MULTIPLICATION SIGN} R", 4)
    assert table([row]).split("\n")[1].split("  ")[1:] == ["not available", f"≤ 4 {row.unit}"]
    assert "other is not available: " in capsys.readouterr().err


def test_a_target_that_fails_is_an_error_with_its_answer(bench: Bench) -> None:
    with pytest.raises(BenchmarkError, match="other answered 500"):
        cpu_rows(bench, [answering(500)], [WHOLE], rounds=1)


def test_a_server_that_ends_is_an_error_with_its_last_words(bench: Bench) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no room')")
    with (
        pytest.raises(ServerExitError, match=r"ended with code 1:\nno room"),
        running(command, core=bench.cores.server),
    ):
        pass


def test_errors_under_load_are_not_counted_as_work(bench: Bench, reference: Target) -> None:
    broken = replace(STREAMED, body={**STREAMED.body, "model": "unknown"})
    with pytest.raises(BenchmarkError, match="4 errors: status 502"):
        cpu_rows(bench, [], [broken], rounds=1)


def test_events_that_the_model_sent_and_the_server_did_not_are_missed(bench: Bench) -> None:
    with pytest.raises(BenchmarkError, match="fewer events than the model sent"):
        cpu_rows(bench, [], [replace(STREAMED, events=500)], rounds=1)


def test_servers_are_ended_also_after_an_error(bench: Bench, reference: Target) -> None:
    pids = []
    with pytest.raises(RuntimeError), bench.server(reference) as server:
        assert server is not None
        pids.append(server.pid)
        raise RuntimeError
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_server_lies_at_the_same_addresses_at_each_start(bench: Bench) -> None:
    tells = f"with open('/proc/self/maps') as maps: print('{LISTENING}' + str(int(maps.readline().split('-')[0], 16)))"
    places = set()
    for _ in range(3):
        with running((sys.executable, "-c", tells), core=bench.cores.server) as server:
            places.add(server.port)
    assert len(places) == 1 or not at_fixed_addresses()  # the system may not allow it


def test_cpu_time_and_memory_of_children_count(bench: Bench) -> None:
    with running((sys.executable, "-c", PARENT), core=bench.cores.server) as server:
        assert server.cpu_seconds() >= 0.5
        assert server.resident_bytes() > 5e6


def test_the_time_to_the_first_answer_and_the_memory_at_rest_are_measured(bench: Bench) -> None:
    rows = idle_rows(bench, repeat=1)
    assert [(row.unit, row.bar) for row in rows] == [("s", 2), ("s", 0.5), ("MB", 60), ("s", 0.3)]
    assert all(row.value is not None and row.value > 0 for row in rows)


def test_open_streams_are_held_while_their_memory_is_read(bench: Bench, reference: Target) -> None:
    rows = stream_rows(bench, [reference, answering(404)], streams=40)
    assert [(row.what, row.value is None, row.bar) for row in rows] == [
        ("R: memory of an idle stream, 40 open", False, None),
        ("other: memory of an idle stream, 40 open", True, 30),
    ]


def test_the_other_cores_are_given_back() -> None:
    before, cores = os.sched_getaffinity(0), available_cores()
    with cores.reserved():
        assert os.sched_getaffinity(0) == {cores.client}
    assert os.sched_getaffinity(0) == before
