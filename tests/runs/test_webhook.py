"""What the webhook does not take, while servers are killed, and with several on one database."""

import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.providers.user.stage import patience
from tests.providers.user.test_failed_deliveries import FAILED, given_up
from tests.providers.user.test_webhook import QUESTION, Listener, listening, settings
from tests.runs.processes import ServerProcess

from antwort.testing import ScriptServer
from antwort.types import JSON

COUNT = 12
KEY = "c2l4dGVlbiBieXRlcywgdHdpY2UsIGFzIGl0IG11c3Q="


def server(folder: Path, model: ScriptServer, listener: Listener, sections: JSON, **webhook: str) -> ServerProcess:
    folder.mkdir(exist_ok=True)
    user = {"enabled": True, **settings(listener, **webhook)}
    return ServerProcess(folder, model.url, providers={"user": user}, sections=sections)


def get(process: ServerProcess) -> Callable[[str], JSON]:
    return lambda path: dict(httpx.get(f"{process.url}/v1{path}", timeout=60).json())


def begin(process: ServerProcess) -> None:
    body = {"model": "steady", "input": "Go!", "background": True}
    httpx.post(f"{process.url}/v1/responses", json=body, timeout=60).raise_for_status()


def number_given_up(process: ServerProcess) -> float:
    metrics = httpx.get(f"{process.url}/metrics", timeout=60).text
    return sum(map(float, re.findall(r'deliveries_total\{outcome="given_up"\} (\S+)', metrics)))


def test_a_server_that_is_killed_between_two_tries_gives_up_after_its_start(tmp_path: Path) -> None:
    with ScriptServer([QUESTION]) as model, listening(*[503] * 1000) as listener:
        process = server(tmp_path, model, listener, {}, give_up_after="4s")
        try:
            process.start()
            begin(process)
            for number in (1, 2):
                listener.wait(number)
                process.kill()
                process.start()
            [failed] = given_up(get(process))
            listener.gate.clear()
            number = len(listener.heard)
            with ThreadPoolExecutor(1) as threads:
                cut_off = threads.submit(httpx.post, f"{process.url}/v1{FAILED}/{failed['id']}/retry", timeout=60)
                listener.wait(number + 1)
                process.kill()
                with pytest.raises(httpx.TransportError):
                    cut_off.result()
            listener.gate.set()
            process.start()
            assert [one["id"] for one in given_up(get(process))] == [failed["id"]]
            assert {headers["webhook-id"] for _, headers in listener.heard} == {failed["id"]}
        finally:
            process.kill()


def test_two_servers_give_up_and_send_again_each_message_once(tmp_path: Path, ready_url: str) -> None:
    sections: Any = {
        "storage": {"url": ready_url, "s3": {"bucket": "none", "endpoint": "http://127.0.0.1:9"}},
        "encryption": {"key": KEY},
    }
    with ScriptServer([QUESTION] * COUNT) as model, listening() as listener:
        listener.default = 500
        both = [server(tmp_path / name, model, listener, sections, give_up_after="3s") for name in ("one", "two")]
        try:
            for process in both:
                process.start()
            for number in range(COUNT):
                begin(both[number % 2])
            failed = given_up(get(both[0]), COUNT)
            assert len({one["id"] for one in failed}) == COUNT
            for _ in patience():  # one is in the list before it is counted
                if sum(map(number_given_up, both)) >= COUNT:
                    break
            assert sum(map(number_given_up, both)) == COUNT
            listener.default = 200
            listener.heard.clear()
            with ThreadPoolExecutor(8) as threads:
                retries = [
                    threads.submit(httpx.post, f"{process.url}/v1{FAILED}/{one['id']}/retry", timeout=60)
                    for one in failed
                    for process in both
                ]
                answers = [retried.result() for retried in retries]
            statuses = Counter(answer.status_code for answer in answers)
            assert statuses[200] == COUNT
            assert statuses.keys() <= {200, 404, 409}
            assert all(answer.json()["delivered"] for answer in answers if answer.status_code == 200)
            assert Counter(headers["webhook-id"] for _, headers in listener.heard) == {one["id"]: 1 for one in failed}
            assert all(get(process)(FAILED)["data"] == [] for process in both)
        finally:
            for process in both:
                process.kill()
