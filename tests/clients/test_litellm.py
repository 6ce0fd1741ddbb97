"""LiteLLM as a client, in an environment of its own: only `make test-full` installs it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.providers.file_search.ingestion.test_kill import stop
from tests.runs.processes import ServerProcess

PYTHON = Path(__file__).parents[2] / ".venv-litellm" / "bin" / "python"
SEARCH = """
import json, sys
import litellm
found = litellm.vector_stores.search(
    vector_store_id=sys.argv[2], query="Where does green tea grow?",
    custom_llm_provider="openai", api_base=sys.argv[1], api_key="none",
)
print(json.dumps(found))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    providers: dict[str, Any] = {"file_search": {"enabled": True}, "files": {"enabled": True}}
    made = ServerProcess(tmp_path, "", providers=providers, sections={"backends": {}})
    made.start()
    yield made
    stop(made)


def test_a_vector_store_is_searched(server: ServerProcess) -> None:
    url = f"{server.url}/v1"
    with OpenAI(base_url=url, api_key="none") as client:
        store = client.vector_stores.create(name="drinks")
        tea = ("tea.md", b"# Tea\n\nGreen tea grows in Uji near Kyoto.")
        file = client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=tea)
    environment = {"PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [PYTHON, "-c", SEARCH, url, store.id], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [(hit["file_id"], hit["filename"]) for hit in found["data"]] == [(file.id, "tea.md")]
    assert "Uji" in found["data"][0]["content"][0]["text"]
