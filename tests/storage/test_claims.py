"""One server at a time."""

import re
from pathlib import Path
from typing import Any

import pytest

from antwort.app import Antwort
from antwort.config import Config
from antwort.errors import ConfigError
from antwort.storage.claims import claimed


def test_what_one_has_another_does_not_get_until_it_is_given_back(tmp_path: Path) -> None:
    database, other = tmp_path / "data" / "antwort.db", tmp_path / "data" / "other.db"
    with claimed([database]):
        refusal = rf"^{re.escape(str(database))}: another server uses it; stop that one"
        with pytest.raises(ConfigError, match=refusal), claimed([other, database]):
            pytest.fail("it was given twice")
        with claimed([other]):
            pass
    with claimed([database]):
        pass
    assert list(database.parent.iterdir()) == []


def test_what_a_crash_has_left_claims_nothing(tmp_path: Path) -> None:
    (tmp_path / "antwort.db-lock").touch()
    with claimed([tmp_path / "antwort.db"]):
        pass


def test_a_place_that_cannot_be_written_is_left_to_who_opens_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with claimed([tmp_path / "file" / "antwort.db"]):
        pass


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ["antwort.db"]),
        ({"storage": {"url": "sqlite:///elsewhere.db"}}, ["elsewhere.db"]),
        ({"storage": {"url": "postgresql://db.example/antwort"}}, []),
        (
            {
                "storage": {"url": "postgresql://db.example/antwort"},
                "providers": {"file_search": {"enabled": True, "settings": {"vector_backend": "embedded"}}},
            },
            ["providers"],
        ),
    ],
)
def test_an_app_claims_what_is_for_one_process(tmp_path: Path, settings: dict[str, Any], names: list[str]) -> None:
    app = Antwort(Config.model_validate({"data_dir": tmp_path, **settings}))
    assert [claim.name for claim in app.claims()] == names
