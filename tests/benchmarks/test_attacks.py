"""The pinger sees a server that freezes, and attacks are carried out against the server as users start it."""

import sys

import pytest

from benchmarks.attackers import ATTACKS
from benchmarks.attacks import hostile_model, longest_wait, pinging, report_of
from benchmarks.hostile import MODELS
from benchmarks.processes import available_cores, running

FREEZING = """
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        if Handler.asked == 3:
            time.sleep(0.4)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("Listening on http://127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
"""


def test_a_server_that_freezes_is_seen() -> None:
    cores = available_cores()
    with running([sys.executable, "-c", FREEZING], core=cores.server) as server, pinging(server.port) as pinger:
        pings, worst = 0, 0.0
        while pings < 4:
            report = report_of(pinger)
            pings += report["pings"]
            worst = max(worst, report["worst"])
            assert not report["lost"]
    assert worst >= 0.4


@pytest.mark.parametrize("attack", [None, "failed logins", "10,000 input items", "20,000 deltas at once"])
def test_an_attack_is_measured(attack: str | None) -> None:
    cores = available_cores()
    with hostile_model(cores) as model:
        assert (longest_wait(cores, model.port, attack, 0.3) or 0) > 0


def test_every_hostile_model_is_asked() -> None:
    asked = {cell.cell_contents for attack in ATTACKS.values() for cell in getattr(attack, "__closure__", None) or ()}
    assert set(MODELS) - {"hello"} <= asked
