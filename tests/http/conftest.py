"""The tests of the API run on each database there is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http import sdk
from tests.support.postgres import PostgresServer


@pytest.fixture(autouse=True, params=["sqlite", "postgresql"])
def _on_each_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    if request.param == "sqlite":
        token = sdk.DATABASE.set(f"sqlite:///{tmp_path / 'database' / 'antwort.db'}")
        yield
        sdk.DATABASE.reset(token)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    # A copy of one that has its tables: to make them takes longer than most tests.
    url = server.create(request.getfixturevalue("postgres_template"))
    token = sdk.DATABASE.set(url)
    yield
    sdk.DATABASE.reset(token)
    server.drop(url)
