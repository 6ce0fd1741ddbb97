from typing import Any, ClassVar

from antwort.providers.code_interpreter import CodeInterpreter
from antwort.testing import ProviderContract


class TestCodeInterpreter(ProviderContract):
    provider = CodeInterpreter
    calls: ClassVar[dict[str, Any]] = {"code_interpreter": {"code": "print('{canary}')"}}
