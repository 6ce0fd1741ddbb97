"""The services of compose.yaml find each other, and antwort takes the configuration that it is given."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from tests.deploy.configurations import loaded, seconds_to_stop, variables_in

import antwort

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TEXT = (DEPLOY / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
CONFIGURATION = (DEPLOY / "antwort.yaml").read_text()


def test_the_configuration_is_one(tmp_path: Path) -> None:
    config = loaded(CONFIGURATION, tmp_path)
    assert config.server.host == "0.0.0.0"
    assert config.auth.api_keys
    assert seconds_to_stop(config) < int(SERVICES["antwort"]["stop_grace_period"].removesuffix("s"))


def test_the_server_has_the_variables_of_its_configuration() -> None:
    assert set(SERVICES["antwort"]["environment"]) == variables_in(CONFIGURATION)


def test_every_service_that_is_named_is_there() -> None:
    hosts = {urlsplit(url).hostname for url in re.findall(r"(?:http|postgresql)://\S+", CONFIGURATION)}
    assert hosts == SERVICES.keys() - {"antwort"} == SERVICES["antwort"]["depends_on"].keys()


def test_what_is_mounted_is_there() -> None:
    mounts = [mount.split(":")[0] for service in SERVICES.values() for mount in service["volumes"]]
    assert {mount for mount in mounts if "/" not in mount} == COMPOSE["volumes"].keys()
    assert [mount for mount in mounts if "/" in mount and not (DEPLOY / mount).exists()] == []
    build = SERVICES["antwort"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_the_page_tells_each_variable_that_has_to_be_set() -> None:
    page = (ROOT / "docs/deploy.md").read_text()
    assert {name for name in re.findall(r"\$\{(\w+):\?", TEXT) if f"{name}=" not in page} == set()


def test_the_server_is_this_version_and_has_no_rights_that_it_does_not_need() -> None:
    server = SERVICES["antwort"]
    assert server["image"] == f"antwort:{antwort.__version__}"
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]


def test_the_search_engine_answers_in_json() -> None:
    assert "json" in yaml.safe_load((DEPLOY / "searxng/settings.yml").read_text())["search"]["formats"]
