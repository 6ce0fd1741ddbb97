import json
import os
import stat
import subprocess
import sys
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from antwort.auth import ApiKey, KeyFile, hash_key
from antwort.auth.keys import KEY_PATTERN
from antwort.context import Principal
from antwort.errors import ConfigError

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def record(**changes: Any) -> ApiKey:
    return ApiKey(
        **{"id": "one", "hash": hash_key("x"), "tenant": "acme", "subject": "bob", "created_at": NOW, **changes}
    )


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "data" / "keys.json", now=lambda: NOW)


def test_a_new_key_is_kept_as_a_hash_only(file: KeyFile) -> None:
    kept, plaintext = file.new("acme", "bob", ["read"], NOW + timedelta(days=1), "for the build")
    assert file.list() == (kept,)
    assert kept == record(
        id=kept.id,
        hash=hash_key(plaintext),
        scopes=frozenset({"read"}),
        expires_at=NOW + timedelta(days=1),
        label="for the build",
    )
    assert plaintext.rpartition("_")[2] not in file.path.read_text()


def test_the_id_in_a_key_can_always_be_told_from_the_secret(file: KeyFile) -> None:
    seen = set()
    for _ in range(20):
        kept, plaintext = file.new("acme")
        match = KEY_PATTERN.fullmatch(plaintext)
        assert match is not None
        assert match[1] == kept.id == kept.subject
        assert "_" not in kept.id
        assert len(plaintext.split("_", 2)[2]) >= 43
        seen.add(plaintext)
    assert len(seen) == 20


def test_neither_key_nor_hash_is_in_the_repr(file: KeyFile) -> None:
    kept, plaintext = file.new("acme")
    for text in (repr(kept), str(kept), repr(kept.principal()), repr(file)):
        assert plaintext.split("_", 2)[2] not in text
        assert kept.hash.removeprefix("sha256:") not in text


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        record().tenant = "other"  # type: ignore[misc]


def test_a_record_stands_for_its_principal() -> None:
    expected = Principal("acme", "bob", frozenset({"read"}), method="api_key", key_id="one")
    assert record(scopes=frozenset({"read"})).principal() == expected


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": ""}, "id"),
        ({"tenant": " "}, "tenant"),
        ({"subject": ""}, "subject"),
        ({"hash": "sha256:abc"}, "hash"),
        ({"hash": "plain text"}, "hash"),
        ({"expires_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
    ],
)
def test_a_record_that_makes_no_sense_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        record(**changes)


def test_a_missing_file_has_no_keys_and_is_not_created_by_looking(file: KeyFile) -> None:
    assert file.list() == ()
    assert file.stamp() is None
    assert file.revoke("nobody") is False
    assert not file.path.parent.exists()


def test_only_the_owner_can_read_the_file_and_the_folder(file: KeyFile) -> None:
    file.new("acme")
    file.new("acme")
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    KeyFile(tmp_path / "keys.json").new("acme")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_the_file_belongs_to_the_owner_of_the_folder_whoever_writes_it(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 12345, 12345)
    file = KeyFile(tmp_path / "keys.json")
    file.new("acme")
    assert {path.stat().st_uid for path in tmp_path.iterdir()} == {tmp_path.stat().st_uid}


def test_nothing_but_the_file_and_its_lock_is_left_behind(file: KeyFile) -> None:
    file.new("acme")
    assert {path.name for path in file.path.parent.iterdir()} == {"keys.json", "keys.json.lock"}


def test_a_failed_write_leaves_the_old_keys_and_no_rubbish(file: KeyFile) -> None:
    file.new("acme")
    before = file.path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        file.new("acme", label="\ud800")
    assert file.path.read_bytes() == before
    assert {path.name for path in file.path.parent.iterdir()} == {"keys.json", "keys.json.lock"}


def test_revoking_removes_one_key_and_keeps_the_file(file: KeyFile) -> None:
    first, _ = file.new("acme")
    second, _ = file.new("acme")
    assert file.revoke(first.id) is True
    assert file.revoke(first.id) is False
    assert file.list() == (second,)
    assert file.revoke(second.id) is True
    assert file.list() == ()
    assert file.path.exists()


def test_an_id_is_not_given_twice(file: KeyFile) -> None:
    file.add(record())
    with pytest.raises(ConfigError, match="already an API key with the id 'one'"):
        file.add(record(hash=hash_key("y")))
    assert file.list() == (record(),)


VALID = {
    "id": "one",
    "hash": hash_key("x"),
    "tenant": "acme",
    "subject": "bob",
    "scopes": ["*"],
    "created_at": "2030-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"version": 2, "keys": []}',
        b'{"version": 1, "keys": {}}',
        b'{"version": 1, "keys": [1]}',
        json.dumps({"version": 1, "keys": [{**VALID, "hash": "plain"}]}).encode(),
        json.dumps({"version": 1, "keys": [{**VALID, "created_at": "2030-01-01T00:00:00"}]}).encode(),
        json.dumps({"version": 1, "keys": [{**VALID, "tenant": ""}]}).encode(),
        json.dumps({"version": 1, "keys": [VALID, {**VALID, "hash": hash_key("y")}]}).encode(),
    ],
)
def test_a_broken_file_is_an_error_with_path_and_cure_and_is_not_overwritten(file: KeyFile, content: bytes) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    for action in (file.list, lambda: file.new("acme"), lambda: file.revoke("one")):
        with pytest.raises(ConfigError, match=r"keys\.json.*antwort keys new") as caught:
            action()
        assert hash_key("x") not in str(caught.value)
    assert file.path.read_bytes() == content


def test_a_file_that_can_be_read_by_hand_is_read(file: KeyFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text(json.dumps({"version": 1, "keys": [VALID]}))
    assert file.list() == (record(),)


def test_a_file_that_is_a_folder_is_an_error_with_its_path(file: KeyFile) -> None:
    file.path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"keys\.json.*cannot be read"):
        file.list()


def test_a_place_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match=r"keys\.json.*cannot be written"):
        KeyFile(tmp_path / "data" / "keys.json").new("acme")


CREATE = """
import sys
from pathlib import Path
from antwort.auth import KeyFile
for _ in range(10):
    KeyFile(Path(sys.argv[1])).new("acme")
"""
CREATE_AND_REVOKE = """
import sys
from pathlib import Path
from antwort.auth import KeyFile
for _ in range(10):
    record, _ = KeyFile(Path(sys.argv[1])).new("acme", label="short-lived")
    assert KeyFile(Path(sys.argv[1])).revoke(record.id)
"""


def test_processes_that_edit_the_file_at_once_lose_nothing(file: KeyFile) -> None:
    kept, _ = file.new("acme")
    programs = (CREATE, CREATE, CREATE_AND_REVOKE)
    workers = [subprocess.Popen([sys.executable, "-c", program, str(file.path)]) for program in programs]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    records = file.list()
    assert len(records) == 21
    assert kept in records
    assert "short-lived" not in {record.label for record in records}
