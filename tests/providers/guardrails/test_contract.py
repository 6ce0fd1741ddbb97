from typing import Any, ClassVar

from antwort.providers.guardrails import Guardrails
from antwort.testing import ProviderContract


class TestGuardrails(ProviderContract):
    provider = Guardrails
    settings: ClassVar[dict[str, Any]] = {"judge": {"policy": "Nothing about the weather."}}
