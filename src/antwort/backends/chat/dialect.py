"""Where servers that speak Chat Completions differ in what they want to be sent."""

from dataclasses import dataclass
from typing import Literal

from antwort.backends.transport import Transport
from antwort.config import BackendConfig

__all__ = ["Dialect"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server wants. The defaults suit vLLM, Ollama, llama.cpp, LM Studio and LiteLLM.

    Only `api.openai.com` is told apart, by its host name: it knows the role `developer`, wants `max_completion_tokens`
    and takes no thoughts back.
    """

    pdf: bool = False
    developer_role: Literal["system", "developer"] = "system"
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning: bool = True

    @classmethod
    def of(cls, config: BackendConfig, transport: Transport) -> "Dialect":
        """Tell a server's dialect from its configuration."""
        if transport.host == "api.openai.com":
            return cls(config.pdf, "developer", "max_completion_tokens", reasoning=False)
        return cls(config.pdf)
