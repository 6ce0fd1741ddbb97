from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from antwort.providers.image_generation import ImageGeneration
from antwort.testing import ProviderContract, ScriptServer


class TestImageGeneration(ProviderContract):
    provider = ImageGeneration
    settings: ClassVar[dict[str, Any]] = {}
    calls: ClassVar[dict[str, Any]] = {"image_generation": {"prompt": "{canary}"}}

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        with ScriptServer([]) as server:
            self.settings["url"] = server.url
            yield
