"""Fields of model servers beyond the API: passed on where a backend takes them, unknown parameters elsewhere."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai import BadRequestError as RefusedRequest
from openai import OpenAI
from pydantic import ValidationError

from antwort import Antwort, Context
from antwort.config import BackendConfig, Config
from antwort.errors import BadRequestError
from antwort.testing import ScriptServer, fail, running, turn
from antwort.wire.requests import decode_create

VENDOR: dict[str, Any] = {
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "chat_template_kwargs": {"enable_thinking": False},
    "guided_json": {"type": "object"},
    "guided_regex": "[a-z]+",
    "seed": 7,
    "stop": ["END"],
}


def served_by(server: ScriptServer, tmp_path: Path, **fields: Any) -> Antwort:
    backends = {"local": BackendConfig(url=server.url, **fields)}
    return Antwort(Config(data_dir=tmp_path, backends=backends))


async def test_fields_of_the_preset_reach_the_model_server(tmp_path: Path) -> None:
    with ScriptServer(["Yes."]) as server:
        async with served_by(server, tmp_path, parameters=["vllm"]) as app:
            await app.run("Hi", model="scripted", temperature=0.5, **VENDOR)
    sent = server.requests[0]
    assert {name: sent[name] for name in VENDOR} == VENDOR
    assert sent["temperature"] == 0.5


@pytest.mark.parametrize(("preset", "name"), [("vllm", "repetition_penalty"), ("llama.cpp", "repeat_penalty")])
async def test_presets_differ_as_the_servers_do(preset: str, name: str, tmp_path: Path) -> None:
    with ScriptServer(["Yes."]) as server:
        async with served_by(server, tmp_path, parameters=[preset]) as app:
            await app.run("Hi", model="scripted", extra_body={name: 1.2})
            other = "repeat_penalty" if preset == "vllm" else "repetition_penalty"
            with pytest.raises(BadRequestError, match=f"Unknown parameter: '{other}'"):
                await app.run("Hi", model="scripted", extra_body={other: 1.2})
    assert server.requests[0][name] == 1.2


async def test_a_name_of_the_list_is_passed_on_from_an_object_as_well(tmp_path: Path) -> None:
    with ScriptServer(["Yes."]) as server:
        async with served_by(server, tmp_path, parameters=["steering"], extra_body={"steering": 1}) as app:
            await app.run("Hi", model="scripted", extra_body={"steering": 2})
            with pytest.raises(BadRequestError, match="beside 'extra_body'"):
                await app.run("Hi", model="scripted", extra_body={"model": "other"})
    assert server.requests[0]["steering"] == 2


async def test_what_no_backend_takes_is_an_unknown_parameter_with_the_cure(tmp_path: Path) -> None:
    with ScriptServer([]) as server:
        async with served_by(server, tmp_path, parameters=["llama.cpp"]) as app:
            with pytest.raises(BadRequestError) as caught:
                await app.run("Hi", model="scripted", guided_json={})
    assert (caught.value.param, caught.value.code) == ("guided_json", "unknown_parameter")
    assert caught.value.message == (
        "Unknown parameter: 'guided_json'. One of the model server's own is passed on if `parameters` of its backend"
        " names it."
    )


async def test_what_another_backend_takes_is_unknown_and_names_the_backend(tmp_path: Path) -> None:
    with ScriptServer([]) as server:
        backends = {
            "plain": BackendConfig(url=server.url, models=["small"]),
            "rich": BackendConfig(url=server.url, models=["large"], parameters=["top_a"]),
        }
        async with Antwort(Config(data_dir=tmp_path, backends=backends)) as app:
            with pytest.raises(BadRequestError, match=r"`parameters` of backends\.plain names it") as caught:
                await app.run("Hi", model="small", top_a=3)
    assert (caught.value.param, caught.value.code) == ("top_a", "unknown_parameter")


async def test_a_fallback_gets_what_it_takes_itself(tmp_path: Path) -> None:
    steps = [turn(error=fail(503, "Away.")), turn("Yes.")]
    with ScriptServer(steps, models=["m"]) as server:
        backends = {
            "first": BackendConfig(url=server.url, models=["m"], parameters=["vllm"], fallback="other", retries=0),
            "other": BackendConfig(url=server.url, models=["x"], parameters=["seed"]),
        }
        async with Antwort(Config(data_dir=tmp_path, backends=backends)) as app:
            await app.run("Hi", model="m", seed=1, top_k=5)
    assert [{"seed", "top_k"} & sent.keys() for sent in server.requests] == [{"seed", "top_k"}, {"seed"}]


def test_clients_send_them_beside_the_other_fields_in_the_background_too(tmp_path: Path) -> None:
    with (
        ScriptServer(["One.", "Two."]) as model,
        running(served_by(model, tmp_path, parameters=["vllm"])) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        *_, last = client.responses.create(
            model="scripted", input="Hi", background=True, stream=True, extra_body=VENDOR
        )
        assert last.type == "response.completed"
        # As with all that says how an answer is made, a response that continues another does not inherit it.
        client.responses.create(model="scripted", input="And?", previous_response_id=last.response.id)
        with pytest.raises(RefusedRequest) as caught:
            client.responses.create(model="scripted", input="Hi", extra_body={"priority": 1})
    assert {name: model.requests[0][name] for name in VENDOR} == VENDOR
    assert not VENDOR.keys() & model.requests[1].keys()
    assert caught.value.code == "unknown_parameter"


async def test_the_template_counts_where_tokens_are_counted(tmp_path: Path) -> None:
    with ScriptServer([], tokenizer="vllm") as server:
        async with served_by(server, tmp_path, parameters=["vllm"]) as app:
            body = {"model": "scripted", "input": "Hi", "chat_template_kwargs": {"a": 1}}
            create = decode_create(msgspec.json.encode(body))
            await app.engine.input_tokens(create, Context("default", scopes=frozenset({"*"})))
    assert server.tokenized[0]["chat_template_kwargs"] == {"a": 1}


@pytest.mark.parametrize("name", ["messages", "stream", "max_tokens", "tools"])
def test_no_backend_takes_what_the_server_writes(name: str) -> None:
    with pytest.raises(ValidationError, match=f"'{name}' is written by the server itself"):
        BackendConfig(url="http://127.0.0.1:1/v1", parameters=[name])
