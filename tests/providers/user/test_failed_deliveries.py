"""What the webhook does not take is given up after a time, listed, and sent again or dropped by hand."""

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.http.sdk import DATABASE, Served
from tests.providers.user.stage import asked, begun, patience, questions, served_user
from tests.providers.user.test_webhook import QUESTION, listening, settings

from antwort.config import Config
from antwort.errors import ConflictError
from antwort.providers.user.failed_deliveries import FailedDeliveries, FailedTry
from antwort.runs.questions import RunQuestions
from antwort.storage import Question, open_store
from antwort.types import JSON

FAILED = "/webhooks/failed"
SOON = {"give_up_after": "0.01s"}
"""The first try that fails is the last one."""


def given_up(ask: Callable[[str], JSON], number: int = 1) -> list[JSON]:
    """Wait until so many messages are in the list, and return them."""
    for _ in patience():
        found: list[JSON] = ask(f"{FAILED}?order=asc&limit=100")["data"]
        if len(found) >= number:
            return found
    raise AssertionError(f"not {number} are given up")


def asking(stage: Served) -> Callable[[str], JSON]:
    return lambda path: dict(stage.request("GET", path).json())


def tries(stage: Served) -> dict[str, float]:
    """Return the metric."""
    lines = httpx.get(f"{stage.server.url}/metrics", timeout=60).text
    found = re.findall(r'antwort_user_webhook_deliveries_total\{outcome="(\w+)"\} (\S+)', lines)
    return {outcome: float(count) for outcome, count in found}


def test_a_message_is_given_up_when_its_time_is_over_and_sent_again_by_hand(tmp_path: Path) -> None:
    with listening(*[500] * 100) as listener:
        user = settings(listener, give_up_after="2s")
        with served_user(tmp_path, [QUESTION], user=user) as stage:
            response_id = begun(stage)
            [question] = asked(stage)
            [failed] = given_up(asking(stage))
            assert (failed["id"], failed["response_id"]) == (question["id"], response_id)
            assert (failed["status"], failed["error"]) == (500, "It answered with the status 500.")
            assert failed["created_at"] >= failed["asked_at"] + 2
            assert (failed["retries"], failed["delivered"]) == (0, False)
            assert stage.request("GET", f"{FAILED}/{question['id']}").json() == failed
            assert questions(stage)[0]["status"] == "open"
            counted = tries(stage)
            while not counted["given_up"]:  # it is in the list before it is counted
                counted = tries(stage)
            assert counted["failed"] >= 1
            again = stage.request("POST", f"{FAILED}/{question['id']}/retry").json()
            assert (again["delivered"], again["retries"], again["status"]) == (False, 1, 500)
            assert [one["retries"] for one in given_up(asking(stage))] == [1]
            listener.answers.clear()
            again = stage.request("POST", f"{FAILED}/{question['id']}/retry").json()
            assert (again["delivered"], again["retries"], again["error"]) == (True, 2, None)
            body, headers = listener.heard[-1]
            assert headers["webhook-id"] == json.loads(body)["data"]["id"] == question["id"]
            assert stage.request("GET", FAILED).json()["data"] == []
            assert stage.request("POST", f"{FAILED}/{question['id']}/retry").status_code == 404
            assert tries(stage)["delivered"] == 1


@pytest.mark.parametrize("status", [410, None])
def test_nobody_is_told_of_what_was_given_up(tmp_path: Path, status: int | None) -> None:
    with listening(*[status or 500] * 100) as listener:
        user = settings(listener, **({} if status else SOON))
        if status is None:
            user["settings"]["webhook"]["url"] = "http://127.0.0.1:1/"
        with served_user(tmp_path, [QUESTION], user=user) as stage:
            begun(stage)
            [failed] = given_up(asking(stage))
            assert failed["status"] == status
    with listening() as later, served_user(tmp_path, [], user=settings(later)) as stage:
        [failed] = given_up(asking(stage))
        dropped = stage.request("POST", f"{FAILED}/{failed['id']}/drop")
        assert dropped.json() == failed
        assert stage.request("GET", FAILED).json()["data"] == []
        assert stage.request("POST", f"{FAILED}/{failed['id']}/drop").status_code == 404
        assert [one["status"] for one in questions(stage)] == ["open"]
    assert later.heard == []


def test_what_was_given_up_is_not_told_after_a_crash_before_the_note_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, noted = RunQuestions.told, threading.Event()
    crashes = [True]

    async def fails_once(self: RunQuestions, question: Question) -> None:
        if crashes:
            crashes.pop()
            raise OSError("the crash")
        await told(self, question)
        noted.set()

    monkeypatch.setattr(RunQuestions, "told", fails_once)
    with listening(500) as listener, served_user(tmp_path, [QUESTION], user=settings(listener, **SOON)) as stage:
        begun(stage)
        given_up(asking(stage))
        assert noted.wait(60)
        assert len(given_up(asking(stage))) == len(listener.heard) == 1


def test_the_list_has_pages(tmp_path: Path) -> None:
    with listening(*[410] * 3) as listener, served_user(tmp_path, [QUESTION] * 3, user=settings(listener)) as stage:
        for _ in range(3):
            begun(stage)
        first, second, third = given_up(asking(stage), 3)
        page = stage.request("GET", FAILED, params={"limit": 2}).json()
        assert (page["data"], page["has_more"]) == ([third, second], True)
        page = stage.request("GET", FAILED, params={"limit": 2, "after": page["last_id"]}).json()
        assert (page["data"], page["has_more"]) == ([first], False)
        assert stage.request("GET", FAILED, params={"after": "question_0"}).status_code == 400


def test_one_whose_question_is_deleted_is_gone(tmp_path: Path) -> None:
    with listening(410, 410) as listener:
        with served_user(tmp_path, [QUESTION] * 2, user=settings(listener)) as stage:
            begun(stage)
            begun(stage)
            one, other = given_up(asking(stage), 2)
            for failed in (one, other):
                stage.request("POST", f"/responses/{failed['response_id']}/cancel").raise_for_status()
                assert stage.request("DELETE", f"/responses/{failed['response_id']}").status_code == 200
            assert stage.request("POST", f"{FAILED}/{one['id']}/retry").status_code == 404
            assert given_up(asking(stage)) == [other]
        with served_user(tmp_path, [], user=settings(listener)) as stage:
            _until_empty(stage)
    assert len(listener.heard) == 2


def test_what_was_given_up_long_ago_is_forgotten(tmp_path: Path) -> None:
    with listening(410) as listener:
        with served_user(tmp_path, [QUESTION], user=settings(listener)) as stage:
            begun(stage)
            given_up(asking(stage))
        with served_user(tmp_path, [], user=settings(listener, keep_failed="0.01s")) as stage:
            _until_empty(stage)


def _until_empty(stage: Served) -> None:
    for _ in patience():
        if not stage.request("GET", FAILED).json()["data"]:
            return
    raise AssertionError("it is not forgotten")


def test_of_two_who_send_one_again_one_does(tmp_path: Path) -> None:
    with listening(410) as listener, served_user(tmp_path, [QUESTION], user=settings(listener)) as stage:
        begun(stage)
        [failed] = given_up(asking(stage))
        retry = f"{FAILED}/{failed['id']}/retry"
        listener.gate.clear()
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(stage.request, "POST", retry)
            listener.wait(2)
            second = stage.request("POST", retry)
            assert (second.status_code, second.json()["error"]["code"]) == (409, "delivery_in_progress")
            listener.gate.set()
            assert first.result().json()["delivered"]
    assert len(listener.heard) == 2


async def test_a_try_that_a_crash_has_cut_off_holds_others_up_for_a_time_only(tmp_path: Path) -> None:
    store = open_store(Config.model_validate({"data_dir": tmp_path, "storage": {"url": DATABASE.get()}}))
    try:
        failed = FailedDeliveries(store.records("user"))
        question = Question(
            id="question_1",
            tenant="t",
            response_id="resp_1",
            call_id="call_1",
            root_id="resp_1",
            kind="question",
            body={},
            created_at=1,
        )
        assert await failed.give_up(question, FailedTry("No."))
        assert not await failed.give_up(question, FailedTry("No."))
        await failed.take("t", question.id, lasts=-60)  # its time is over
        kept = await failed.take("t", question.id, lasts=60)
        with pytest.raises(ConflictError):
            await failed.take("t", question.id, lasts=60)
        await failed.tried_again(kept, FailedTry("No.", 503))
        await failed.take("t", question.id, lasts=60)
    finally:
        await store.close()


def test_nobody_sees_what_was_given_up_of_another_tenant(tmp_path: Path) -> None:
    keys = [{"id": name, "key": f"key-{name}", "tenant": name} for name in ("one", "two")]
    mine, theirs = ({"Authorization": f"Bearer {entry['key']}"} for entry in keys)
    body = {"model": "scripted", "input": "Go!", "background": True}
    with (
        listening(410) as listener,
        served_user(tmp_path, [QUESTION], user=settings(listener), auth={"api_keys": keys}) as stage,
    ):
        stage.request("POST", "/responses", json=body, headers=mine).raise_for_status()
        [failed] = given_up(lambda path: dict(stage.request("GET", path, headers=mine).json()))
        path = f"{FAILED}/{failed['id']}"
        assert stage.request("GET", FAILED, headers=theirs).json()["data"] == []
        assert stage.request("GET", path, headers=theirs).status_code == 404
        assert stage.request("POST", f"{path}/retry", headers=theirs).status_code == 404
        assert stage.request("POST", f"{path}/drop", headers=theirs).status_code == 404
        assert stage.request("GET", path, headers=mine).json() == failed
    assert len(listener.heard) == 1


def test_without_a_webhook_nothing_is_sent_again(tmp_path: Path) -> None:
    with served_user(tmp_path, []) as stage:
        assert stage.request("GET", FAILED).json()["data"] == []
        refused = stage.request("POST", f"{FAILED}/question_1/retry")
        assert (refused.status_code, "providers.user.settings.webhook" in refused.text) == (409, True)
