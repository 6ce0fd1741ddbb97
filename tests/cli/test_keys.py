import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from antwort.auth import hash_key

Cli = Callable[..., Result]
Write = Callable[[str], Path]


def _new(cli: Cli, *arguments: str) -> dict[str, Any]:
    result = cli("keys", "new", "--json", *arguments)
    assert result.exit_code == 0, result.output
    record: dict[str, Any] = json.loads(result.stdout)
    return record


def test_the_key_alone_is_on_standard_output_and_only_its_hash_is_kept(cli: Cli) -> None:
    result = cli("keys", "new", "--tenant", "acme")
    assert result.exit_code == 0
    (key,) = result.stdout.splitlines()
    assert key.startswith("ak_")
    assert "it is not shown again" in result.stderr
    assert key not in result.stderr
    kept = Path(".antwort/keys.json").read_text(encoding="utf-8")
    assert hash_key(key) in kept
    assert key not in kept


def test_the_first_key_comes_with_the_note_that_a_running_server_needs_a_restart(cli: Cli) -> None:
    assert "after a restart" in cli("keys", "new", "--tenant", "acme").stderr
    assert "after a restart" not in cli("keys", "new", "--tenant", "acme").stderr


def test_a_key_for_a_server_that_asks_for_none_is_a_warning(cli: Cli, config: Write) -> None:
    config("auth:\n  mode: none\n")
    assert "auth.mode is 'none'" in cli("keys", "new", "--tenant", "acme").stderr


def test_a_key_can_be_created_where_authentication_is_required_and_there_is_none(cli: Cli, config: Write) -> None:
    config("auth:\n  mode: required\n  keys_file: kept/keys.json\n")
    assert _new(cli, "--tenant", "acme")["tenant"] == "acme"
    assert Path("kept/keys.json").exists()


def test_the_list_shows_all_but_the_secret(cli: Cli) -> None:
    options = ("--tenant", "acme", "--subject", "ci", "--scope", "read", "--scope", "metrics", "--label", "the build")
    record = _new(cli, *options)
    key = record.pop("key")
    listed = cli("keys", "list", "--json")
    assert json.loads(listed.stdout) == [record]
    assert (record["subject"], record["scopes"], record["label"]) == ("ci", ["metrics", "read"], "the build")
    assert record["expires"] is None
    table = cli("keys", "list").stdout
    assert table.splitlines()[0].split() == ["ID", "TENANT", "SUBJECT", "SCOPES", "CREATED", "EXPIRES", "LABEL"]
    for output in (listed.output, table):
        assert record["id"] in output
        assert key not in output
        assert hash_key(key) not in output


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        ("responses:reed", "there is no scope 'responses:reed'; did you mean 'responses:read'?"),
        ("functions:x", "there is no scope 'functions:x'; did you mean 'functions:call'?"),
        ("conversations", "there is no scope 'conversations'; there is conversations:read, conversations:write"),
        ("", "one scope each; repeat --scope"),
        ("a b", "one scope each; repeat --scope"),
        ("metrics ", "one scope each; repeat --scope"),
        ("responses:read,responses:write", "one scope each; repeat --scope"),
    ],
)
def test_a_scope_that_cannot_be_is_refused(cli: Cli, scope: str, told: str) -> None:
    result = cli("keys", "new", "--tenant", "acme", "--scope", scope)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert not Path(".antwort/keys.json").exists()


def test_a_scope_that_the_api_does_not_have_is_a_warning(cli: Cli) -> None:
    result = cli("keys", "new", "--tenant", "acme", "--scope", "response:read", "--scope", "responses:*")
    assert result.exit_code == 0
    assert "the scope 'response:read' opens only what a provider or a function asks it for" in result.stderr
    assert "did you mean 'responses:read'?" in result.stderr
    assert "'responses:*'" not in result.stderr


@pytest.mark.parametrize("scope", ["vector_stores:reed", "notes:read", "call"])
def test_a_scope_of_something_else_is_not_taken_for_one_of_the_api(cli: Cli, scope: str) -> None:
    result = cli("keys", "new", "--tenant", "acme", "--scope", scope)
    assert result.exit_code == 0
    assert f"the scope '{scope}' opens only what a provider or a function asks it for." in result.stderr
    assert "did you mean" not in result.stderr


def test_an_empty_list_says_how_to_create_a_key(cli: Cli) -> None:
    result = cli("keys", "list")
    assert (result.exit_code, result.stdout) == (
        0,
        "There are no keys in .antwort/keys.json. Create one with 'antwort keys new'.\n",
    )
    assert json.loads(cli("keys", "list", "--json").stdout) == []
    assert not Path(".antwort").exists()


@pytest.mark.parametrize(("given", "span"), [("30d", timedelta(days=30)), ("12h", timedelta(hours=12))])
def test_an_expiry_may_be_a_duration(cli: Cli, given: str, span: timedelta) -> None:
    record = _new(cli, "--tenant", "acme", "--expires", given)
    created, expires = (datetime.fromisoformat(record[name]) for name in ("created", "expires"))
    assert abs(expires - created - span) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2190-01-31", datetime(2190, 1, 31, tzinfo=UTC)),
        ("2190-01-31T12:00:00+02:00", datetime(2190, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_an_expiry_may_be_a_date(cli: Cli, given: str, expected: datetime) -> None:
    record = _new(cli, "--tenant", "acme", "--expires", given)
    assert datetime.fromisoformat(record["expires"]) == expected


@pytest.mark.parametrize("given", ["soon", "30", "0d", "-1d", "999999w", "1999-12-31", "2190-02-30", ""])
def test_an_expiry_that_makes_no_sense_is_a_usage_error(cli: Cli, given: str) -> None:
    result = cli("keys", "new", "--tenant", "acme", "--expires", given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"'{given}' is n" in result.stderr
    assert not Path(".antwort").exists()


def test_a_key_has_a_tenant(cli: Cli) -> None:
    assert _new(cli)["tenant"] == "default"
    result = cli("keys", "new", "--tenant", " ")
    assert result.exit_code == 2
    assert "the tenant of an API key must not be empty" in result.stderr


def test_a_revoked_key_is_gone(cli: Cli) -> None:
    first, second = _new(cli, "--tenant", "acme"), _new(cli, "--tenant", "acme")
    result = cli("keys", "revoke", first["id"])
    assert (result.exit_code, result.stdout) == (0, f"Revoked {first['id']}.\n")
    assert [record["id"] for record in json.loads(cli("keys", "list", "--json").stdout)] == [second["id"]]


def test_a_key_given_whole_is_revoked_by_its_id_and_never_repeated(cli: Cli, refused: Callable[..., str]) -> None:
    record = _new(cli, "--tenant", "acme")
    secret = record["key"].split("_", 2)[2]
    assert secret not in cli("keys", "revoke", record["key"]).output
    assert json.loads(cli("keys", "list", "--json").stdout) == []
    line = refused("keys", "revoke", record["key"])
    assert f"there is no API key '{record['id']}'" in line
    assert secret not in line


def test_an_unknown_id_is_refused_with_a_suggestion(cli: Cli, refused: Callable[..., str]) -> None:
    assert "antwort keys list" in refused("keys", "revoke", "nothing")
    key_id = _new(cli, "--tenant", "acme")["id"]
    line = refused("keys", "revoke", key_id[:-1])
    assert line == f".antwort/keys.json: there is no API key '{key_id[:-1]}'; did you mean '{key_id}'?"


def test_a_key_of_the_configuration_is_revoked_there(cli: Cli, config: Write, refused: Callable[..., str]) -> None:
    config("auth:\n  api_keys:\n    - id: ci\n      key: abcdefghij\n")
    assert "is given in the configuration (antwort.yaml:3); remove it there" in refused("keys", "revoke", "ci")
    assert "The configuration gives 1 more" in cli("keys", "list").stderr


def test_what_happens_to_keys_is_in_the_audit_log(cli: Cli, config: Write) -> None:
    config("observability:\n  audit_file: audit.log\n")
    record = _new(cli, "--tenant", "acme", "--subject", "ci")
    cli("keys", "revoke", record["id"])
    text = Path("audit.log").read_text(encoding="utf-8")
    created, revoked = (json.loads(line) for line in text.splitlines())
    for event, name in ((created, "key.created"), (revoked, "key.revoked")):
        assert (event["event"], event["tenant"], event["subject"], event["key_id"]) == (
            name,
            "acme",
            "ci",
            record["id"],
        )
    assert record["key"] not in text


def test_a_key_is_not_created_when_the_audit_log_cannot_be_written(config: Write, refused: Callable[..., str]) -> None:
    config("observability:\n  audit_file: no/such/audit.log\n")
    assert "cannot open the audit log" in refused("keys", "new", "--tenant", "acme")
    assert not Path(".antwort").exists()


def test_a_broken_file_of_keys_is_one_line(refused: Callable[..., str]) -> None:
    Path(".antwort").mkdir()
    Path(".antwort/keys.json").write_text("{", encoding="utf-8")
    assert "The file of API keys is broken" in refused("keys", "list")
