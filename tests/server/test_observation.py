"""What the log has of requests."""

import io
import json
from pathlib import Path

import httpx

from antwort.observability import configure_logging
from antwort.testing import served


def test_a_refused_request_is_a_line_with_its_id_and_reason_also_without_an_access_log(tmp_path: Path) -> None:
    log = io.StringIO()
    configure_logging("info", "json", log)
    with served({"data_dir": str(tmp_path / "data"), "providers": {}}) as server:
        for number, path in enumerate(("/v1/models", "/v1/responses/resp_none", "/v1/nothing")):
            httpx.get(server.url + path, headers={"x-request-id": f"id-{number}"})
        refused = httpx.post(f"{server.url}/v1/responses", headers={"x-request-id": "id-3"}, json={"input": 5})
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    access = [line for line in lines if line["logger"] == "antwort.access"]
    assert [(line["request_id"], line["message"]) for line in access] == [
        ("id-1", "GET /v1/responses/resp_none 404"),
        ("id-2", "GET /v1/nothing 404"),
        ("id-3", "POST /v1/responses 400"),
    ]
    assert access[2]["error"] == refused.json()["error"]["message"]
