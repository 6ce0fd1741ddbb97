import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent

import pytest

from antwort.storage import SqliteStore, Store
from antwort.storage.postgres import PostgresStore
from antwort.storage.schema.revisions import MIGRATIONS, Migrations, head


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the SQLite database of a test is, or will be."""
    return tmp_path / "data" / "antwort.db"


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Store]:
    """An empty store of each kind there is."""
    store: Store
    if request.param == "sqlite":
        store = SqliteStore.open(path)
    else:
        store = await asyncio.to_thread(PostgresStore.open, request.getfixturevalue("ready_url"))
    yield store
    await store.close()


@pytest.fixture
def later(tmp_path: Path) -> Migrations:
    """The migrations of a version to come, which has one revision more."""
    folder = tmp_path / "50% migrations"
    shutil.copytree(MIGRATIONS.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "r9999_notes.py").write_text(
        dedent(
            f"""
            import sqlalchemy as sa
            from alembic import op

            revision = "9999"
            down_revision = "{head()}"

            def upgrade():
                op.create_table("notes", sa.Column("text", sa.Text))
                op.add_column("responses", sa.Column("colour", sa.Text, server_default="blue"))
            """
        )
    )
    return Migrations(folder)
