"""`antwort keys`."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from antwort.auth import ApiKey, is_anonymous, keys_file
from antwort.cli.groups import Group
from antwort.cli.options import configured, json_option
from antwort.cli.output import Misuse, iso_time, print_json, print_table
from antwort.config import Config, LoadedConfig
from antwort.context.context import EVERYTHING, OWN_SCOPES, is_one_scope, mistake_in, nearest_scope
from antwort.errors import ConfigError, did_you_mean
from antwort.observability import AuditLog

_DURATION = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _moment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime | None:
    """Read a moment to come: a duration from now, or a date of ISO 8601, which is in UTC unless it says otherwise."""
    if value is None:
        return None
    now = datetime.now(UTC)
    try:
        if duration := _DURATION.fullmatch(value):
            moment = now + timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        else:
            moment = datetime.fromisoformat(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"'{value}' is neither a duration such as 30d or 12h nor a date such as 2030-01-31"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment <= now:
        raise click.BadParameter(f"'{value}' is not in the future")
    return moment


@click.group(cls=Group)
def keys() -> None:
    """Create, list and revoke API keys."""


@keys.command()
@click.option("--tenant", default="default", show_default=True, help="Tenant the key belongs to.")
@click.option("--subject", help="Who uses the key; its id if not given.")
@click.option("--scope", "scopes", multiple=True, help="What the key may do; repeatable. Everything if not given.")
@click.option("--expires", callback=_moment, metavar="WHEN", help="When it ends: 30d, 12h, or the start of a date.")
@click.option("--label", help="A note for yourself.")
@json_option
@configured
def new(
    loaded: LoadedConfig,
    *,
    tenant: str,
    subject: str | None,
    scopes: tuple[str, ...],
    expires: datetime | None,
    label: str | None,
    as_json: bool,
) -> None:
    """Create a key and print it, this once."""
    config = loaded.config
    notes = [note for note in (_note(config), *map(_scope_note, scopes)) if note]
    with _audit(config) as audit:
        try:
            record, plaintext = keys_file(config).new(tenant, subject, scopes or ("*",), expires, label)
        except ValueError as error:
            raise Misuse(str(error)) from error
        if audit is not None:
            audit.record("key.created", tenant=record.tenant, subject=record.subject, key_id=record.id)
    if as_json:
        print_json({**_described(record), "key": plaintext})
    else:
        click.echo(plaintext)
        click.echo(f"This is the key {record.id}. Keep it: it is not shown again.", err=True)
    for note in notes:
        click.echo(f"antwort: warning: {note}", err=True)


@keys.command("list")
@json_option
@configured
def list_keys(loaded: LoadedConfig, *, as_json: bool) -> None:
    """List the keys that were created, never the keys themselves."""
    file = keys_file(loaded.config)
    records = [_described(record) for record in file.list()]
    if as_json:
        print_json(records)
    elif records:
        print_table(tuple(records[0]), [[_text(value) for value in record.values()] for record in records])
    else:
        click.echo(f"There are no keys in {file.path}. Create one with 'antwort keys new'.")
    if given := len(loaded.config.auth.api_keys):
        click.echo(f"The configuration gives {given} more (auth.api_keys).", err=True)


@keys.command()
@click.argument("key_id", metavar="ID")
@configured
def revoke(loaded: LoadedConfig, *, key_id: str) -> None:
    """Revoke a key for good. A running server refuses it from then on."""
    config = loaded.config
    key_id = _without_secret(key_id)
    file = keys_file(config)
    record = next((record for record in file.list() if record.id == key_id), None)
    with _audit(config) as audit:
        if record is None or not file.revoke(key_id):
            raise ConfigError(_unknown(loaded, key_id), where=str(file.path))
        if audit is not None:
            audit.record("key.revoked", tenant=record.tenant, subject=record.subject, key_id=key_id)
    click.echo(f"Revoked {key_id}.")


def _scope_note(scope: str) -> str | None:
    """Return what is odd about a scope; one that cannot be meant is a Misuse."""
    if not is_one_scope(scope):
        raise Misuse(f"'{scope}' is not a scope: one scope each; repeat --scope")
    if mistake := mistake_in(scope):
        raise Misuse(mistake)
    family = scope.partition(":")[0]
    if scope == EVERYTHING or any(name.partition(":")[0] == family for name in OWN_SCOPES):
        return None
    hint = nearest_scope(scope) or "."
    return f"the scope '{scope}' opens only what a provider or a function asks it for{hint}"


def _note(config: Config) -> str | None:
    """Return what an operator who creates a key should know about the server it is for."""
    if config.auth.mode == "none":
        return "the server does not ask for keys, because auth.mode is 'none'"
    if is_anonymous(config):
        return "this is the first key; a server that is running asks for keys after a restart"
    return None


@contextmanager
def _audit(config: Config) -> Iterator[AuditLog | None]:
    """Open the audit log if there is a file for it."""
    if config.observability.audit_file is None:
        yield None
        return
    with closing(AuditLog(config.observability.audit_file)) as audit:
        yield audit


def _described(record: ApiKey) -> dict[str, Any]:
    return {
        "id": record.id,
        "tenant": record.tenant,
        "subject": record.subject,
        "scopes": sorted(record.scopes),
        "created": iso_time(record.created_at.timestamp()),
        "expires": None if record.expires_at is None else iso_time(record.expires_at.timestamp()),
        "label": record.label,
    }


def _text(value: str | list[str] | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else ", ".join(value)


def _without_secret(given: str) -> str:
    """Return the id of a key that was given whole, for the secret must not get into a message."""
    prefix, _, rest = given.partition("_")
    return rest.partition("_")[0] if prefix == "ak" else given


def _unknown(loaded: LoadedConfig, key_id: str) -> str:
    config = loaded.config
    for index, entry in enumerate(config.auth.api_keys):
        if entry.id == key_id:
            origin = loaded.origin(f"auth.api_keys.{index}.id")
            return f"the API key '{key_id}' is given in the configuration ({origin}); remove it there"
    known = [record.id for record in keys_file(config).list()]
    hint = did_you_mean(key_id, known) or "; 'antwort keys list' shows those there are"
    return f"there is no API key '{key_id}'{hint}"
