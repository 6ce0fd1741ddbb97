"""Providers the pleasant way: settings, marks, metrics."""

import functools
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr
from typing_extensions import override

from antwort import FunctionRegistry
from antwort.config import load_config
from antwort.errors import ConfigError, DefinitionError
from antwort.functions.metrics import MetricDescriptor
from antwort.provider import Counter, Gauge, Histogram, Provider, Settings, function, route


class MailSettings(Settings):
    host: str = "localhost"
    port: int = 25
    password: SecretStr | None = None


class MailProvider(Provider[MailSettings]):
    aliases: ClassVar = {"server": "host"}
    sent = Counter("sent_total", "Mails sent.", ["outcome"])
    queue = Gauge("queue_length", "Mails waiting.")
    seconds = Histogram(full_name="mail_seconds", documentation="Seconds per mail.", buckets=(1, 2))

    @function(scope="user")
    async def send(self, to: str) -> str:
        """Send a mail."""
        return to

    @staticmethod
    @function
    def check(address: str) -> bool:
        """Check an address."""
        return "@" in address


def test_the_name_comes_from_the_class() -> None:
    class HTTPProxyProvider(Provider):
        pass

    class WebSearch2(Provider):
        pass

    assert (MailProvider.name, HTTPProxyProvider.name, WebSearch2.name) == ("mail", "http_proxy", "web_search2")


def test_a_bad_name_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(DefinitionError, match="'Bad Name' is not a provider name"):

        class Bad(Provider):
            name = "Bad Name"


def test_functions_are_in_the_order_of_definition_and_scoped_core_unless_said_otherwise() -> None:
    assert [(spec.name, spec.scope) for spec in MailProvider().tools()] == [("send", "user"), ("check", "core")]


def test_hints_are_read_at_once_except_those_of_our_own_providers() -> None:
    class Unreadable(Provider):
        @function
        async def act(self, thing: functools.partial[int]) -> None:
            """Act."""

    with pytest.raises(DefinitionError, match="'thing' has a type"):
        Unreadable().tools()
    Unreadable.__module__ = "antwort.providers.unreadable"
    registry = FunctionRegistry()  # and it reads none of them, however they are offered
    registry.register(Unreadable(), offer="on_request", approval="always")
    [spec] = registry.list()
    assert (spec.offer, spec.approval) == ("on_request", "always")
    with pytest.raises(DefinitionError, match="'thing' has a type"):
        _ = spec.parameters


def test_a_subclass_inherits_functions_and_may_replace_them() -> None:
    class Louder(MailProvider):
        @override
        @function(description="Send it loudly.")
        async def send(self, to: str) -> str:
            return to.upper()

        @function
        async def shout(self) -> str:
            """Shout."""
            return "!"

    tools = {spec.name: spec.description for spec in Louder().tools()}
    assert tools == {"send": "Send it loudly.", "check": "Check an address.", "shout": "Shout."}
    assert Louder.settings_type is MailSettings


class Archive:
    """A part of a provider: what one does with mails that were sent."""

    def __init__(self, settings: MailSettings) -> None:
        self._settings = settings

    @function
    async def find(self, word: str) -> str:
        """Find a mail."""
        return f"{word} at {self._settings.host}"

    @route("GET", "/v1/mails")
    async def list_mails(self) -> list[str]:
        """List the mails."""
        return []


class Partitioned(MailProvider):
    def __init__(self, settings: MailSettings | None = None) -> None:
        super().__init__(settings)
        self.parts = (Archive(self.settings),)

    @route("GET", "/v1/queue")
    async def list_queue(self) -> list[str]:
        """List what waits."""
        return []


async def test_functions_and_routes_of_its_parts_are_the_providers_behind_its_own() -> None:
    provider = Partitioned(MailSettings(host="there"))
    assert [(spec.name, spec.scope) for spec in provider.tools()] == [
        ("send", "user"),
        ("check", "core"),
        ("find", "core"),
    ]
    assert [route.path for route in provider.routes()] == ["/v1/queue", "/v1/mails"]
    registry = FunctionRegistry()
    registry.register(provider)
    assert (await registry.execute("find", {"word": "tea"})).output == "tea at there"


def test_parts_belong_to_one_object() -> None:
    one, other = Partitioned(), Partitioned()
    assert one.parts[0] is not other.parts[0]
    assert MailProvider().parts == ()


class Nothing:
    """Nothing is marked in it."""


class Forgetful:
    @function
    async def act(thing: str) -> str:  # type: ignore[misc]  # noqa: N805
        """Act."""
        return thing


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (Archive, "parts are objects, and Archive is a class; make one of it"),
        (MailProvider(), "MailProvider is a provider, not a part of one; register it by itself"),
        (Nothing(), "its part Nothing has no @function, no @route and no @check"),
        (Forgetful(), "Forgetful.act is a method and begins with 'thing'"),
    ],
)
def test_what_is_no_part_is_refused(part: object, told: str) -> None:
    provider = MailProvider()
    provider.parts = (part,)
    with pytest.raises(DefinitionError, match=told):
        provider.tools()
    with pytest.raises(DefinitionError, match=told):
        provider.routes()


def test_a_function_of_a_part_needs_a_name_of_its_own() -> None:
    class Sender:
        @function
        async def send(self) -> str:
            """Send."""
            return ""

    provider = MailProvider()
    provider.parts = (Sender(),)
    with pytest.raises(DefinitionError, match="has two functions of one name"):
        provider.tools()


def test_settings_are_typed_and_have_defaults() -> None:
    assert MailProvider().settings == MailSettings()
    assert MailProvider.from_settings({"port": "2525"}).settings.port == 2525


def test_an_alias_is_read_and_both_names_at_once_are_refused() -> None:
    assert MailProvider.from_settings({"server": "mx"}).settings.host == "mx"
    with pytest.raises(ConfigError, match="'server' is another name for 'host'; keep one of the two"):
        MailProvider.from_settings({"server": "a", "host": "b"})


def test_an_error_about_a_setting_names_key_and_line_also_through_an_alias(tmp_path: Path) -> None:
    file = tmp_path / "antwort.yaml"
    file.write_text("providers:\n  mail:\n    enabled: true\n    settings:\n      port: 25\n      server: [1]\n")
    loaded = load_config(file, environ={})
    assert loaded.config.providers is not None
    with pytest.raises(ConfigError, match=r"antwort\.yaml:6: providers\.mail\.settings\.host"):
        MailProvider.from_settings(loaded.config.providers["mail"].settings, loaded=loaded)


def test_a_secret_never_shows_in_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        MailProvider.from_settings({"password": ["hunter22"]})
    assert "hunter22" not in str(caught.value)


def test_metrics_are_prefixed_and_belong_to_one_object() -> None:
    one, two = MailProvider(), MailProvider()
    assert one.sent is one.sent
    assert one.sent is not two.sent
    names = {family.name for collector in one.collectors() for family in collector.collect()}
    assert names == {"antwort_mail_sent", "antwort_mail_queue_length", "mail_seconds"}
    assert isinstance(MailProvider.sent, MetricDescriptor)


@pytest.mark.parametrize("arguments", [{}, {"name": "a", "full_name": "b"}, {"name": "a"}])
def test_a_metric_needs_one_name_and_a_sentence(arguments: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        Counter(**arguments)


def test_settings_must_be_settings() -> None:
    with pytest.raises(DefinitionError, match="settings must be a subclass of"):

        class Wrong(Provider[int]):  # type: ignore[type-var]
            pass
