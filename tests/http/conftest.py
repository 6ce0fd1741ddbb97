"""The tests of the API run on each database there is."""

from collections.abc import Iterator

import pytest
from tests.http import sdk


@pytest.fixture(autouse=True)
def _on_each_database(database_url: str) -> Iterator[None]:
    token = sdk.DATABASE.set(database_url)
    yield
    sdk.DATABASE.reset(token)
