"""Model servers that speak the Responses API: OpenAI, vLLM, llama.cpp, another antwort."""

from antwort.backends.responses.backend import ResponsesBackend

__all__ = ["ResponsesBackend"]
