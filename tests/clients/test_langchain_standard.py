"""The standard suite of LangChain for chat models, with `ChatOpenAI` on the shipped server."""

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import httpx2
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests, chat_models
from langchain_tests.unit_tests import ChatModelUnitTests
from tests.clients.improvised import improvising
from tests.clients.stage import KEY, staged
from tests.http.sdk import AsyncRecording, Recording, Tape
from typing_extensions import override

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
STORES = ["sqlite", "postgresql"] if os.environ.get("ANTWORT_TEST_FULL") else ["sqlite"]
PAGE = b"%PDF-1.4\n%%EOF\n"


class _Downloads:
    """Stands in for the module `httpx` of the suite, which would fetch its pictures and papers from the internet."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @classmethod
    def get(cls, url: str, **_: Any) -> "_Downloads":
        return cls(PAGE if url.endswith(".pdf") else PIXEL)


@pytest.mark.parametrize("database_url", STORES, indirect=True)
@pytest.mark.filterwarnings("ignore:OpenAI may require a filename:UserWarning")  # the suite gives none
@pytest.mark.filterwarnings("ignore:Received a Pydantic BaseModel V1 schema:UserWarning")  # the suite gives one
class TestChatModel(ChatModelIntegrationTests):
    """What a chat model must do, asked of the server."""

    NOT_APPLICABLE: ClassVar[dict[str, str]] = {
        "test_audio_inputs": "the Responses API takes no audio",
        "test_stream_time": "it measures time, from recorded answers",
    }

    @pytest.fixture(autouse=True)
    async def _on_the_server(
        self, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[None]:
        monkeypatch.setattr(chat_models, "httpx", _Downloads)
        tapes: list[Tape] = []
        with (
            improvising() as model,
            staged(
                model, tmp_path, database_url, outbound={"model_urls": "any"}
            ) as served,  # the suite names pages of the world
            httpx2.Client(transport=Recording(tapes)) as client,
        ):
            async with httpx2.AsyncClient(transport=AsyncRecording(tapes)) as async_client:
                self._connection: dict[str, Any] = {
                    "base_url": f"{served.server.url}/v1",
                    "http_client": client,
                    "http_async_client": async_client,
                }
                yield
        for tape in tapes:
            tape.lint()

    @property
    @override
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    @override
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "scripted", "api_key": KEY, "use_responses_api": True, "max_retries": 0, **self._connection}

    @property
    @override
    def model_override_value(self) -> str | None:
        return "other"

    @property
    @override
    def supports_json_mode(self) -> bool:
        return True

    @property
    @override
    def supports_image_inputs(self) -> bool:
        return True

    @property
    @override
    def supports_image_urls(self) -> bool:
        return True

    @property
    @override
    def supports_image_tool_message(self) -> bool:
        return True

    @property
    @override
    def supports_pdf_inputs(self) -> bool:
        return True

    @property
    @override
    def supports_pdf_tool_message(self) -> bool:
        return True

    @property
    @override
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    @override
    def supported_usage_metadata_details(self) -> dict[Literal["invoke", "stream"], list[Any]]:
        return {"invoke": ["reasoning_output", "cache_read_input"], "stream": ["reasoning_output", "cache_read_input"]}

    @override
    def invoke_with_reasoning_output(self, *, stream: bool = False) -> AIMessage:
        return self._answer(stream)

    @override
    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        return self._answer(stream)

    def _answer(self, stream: bool) -> AIMessage:
        chat = ChatOpenAI(**self.chat_model_params)
        if not stream:
            return chat.invoke("Hello")
        whole: AIMessageChunk | None = None
        for chunk in chat.stream("Hello"):
            assert isinstance(chunk, AIMessageChunk)
            whole = chunk if whole is None else whole + chunk
        assert whole is not None
        return whole


class TestChatModelAlone(ChatModelUnitTests):
    """What a chat model must do before it asks anybody."""

    NOT_APPLICABLE: ClassVar[dict[str, str]] = {
        "test_serdes": "it compares with a recorded form of LangChain's own",
        "test_init_time": "it measures time",
    }

    @property
    @override
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    @override
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "scripted", "use_responses_api": True, "base_url": "http://127.0.0.1:8080/v1", "api_key": KEY}

    @property
    @override
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        base = "http://127.0.0.1:8080/v1"
        return (
            {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": base},
            {"model": "scripted", "use_responses_api": True},
            {"openai_api_key": KEY, "openai_api_base": base},
        )
