from typing import Any, ClassVar

from antwort.providers.variables import VariablesProvider
from antwort.testing import ProviderContract


class TestVariables(ProviderContract):
    provider = VariablesProvider
    calls: ClassVar[dict[str, Any]] = {
        "store_set": {"key": "notes", "value": "what {canary} wrote", "scope": "tenant"},
        "store_get": {"key": "notes"},
        "store_ref": {"key": "notes"},
        "store_summarize": {"key": "notes"},
        "store_list": {},
        "store_append": {"key": "log", "value": "what {canary} wrote", "scope": "tenant"},
        "store_delete": {"key": "log", "scope": "tenant"},
    }
