"""A real SearXNG for tests: a process of its own, in an environment of its own, with engines that need no internet."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.support.site import Site
from tests.support.werkzeug import serving

__all__ = ["searxng"]

PYTHON = Path(__file__).parents[2] / ".venv-searxng" / "bin" / "python"


@contextlib.contextmanager
def searxng(folder: Path, engines: Mapping[str, Site], formats: tuple[str, ...] = ("html", "json")) -> Iterator[str]:
    """Run an instance whose engines are sites on this machine, and give its address.

    A site gets the query as `q` at `/find` and answers with a JSON object: `results`, each with `title`, `url` and
    `content`.
    """
    assert PYTHON.exists(), "there is no SearXNG; run 'make setup'"
    settings = folder / "searxng.yml"
    settings.write_text(yaml.safe_dump(_settings(engines, formats)), encoding="utf-8")
    with serving([PYTHON, "-m", "searx.webapp"], folder, {"SEARXNG_SETTINGS_PATH": str(settings)}) as address:
        yield address


def _settings(engines: Mapping[str, Site], formats: tuple[str, ...]) -> dict[str, Any]:
    return {
        "use_default_settings": {"engines": {"keep_only": []}},
        "server": {"secret_key": "only for tests", "limiter": False, "bind_address": "127.0.0.1", "port": 1},
        "search": {"formats": list(formats), "ban_time_on_fail": 0, "max_ban_time_on_fail": 0},
        "plugins": {},
        "outgoing": {"request_timeout": 60.0},
        "engines": [
            {
                "name": name,
                "engine": "json_engine",
                "shortcut": f"e{number}",
                "categories": ["general"],
                "search_url": f"{site.url}/find?q={{query}}",
                "results_query": "results",
                "title_query": "title",
                "url_query": "url",
                "content_query": "content",
                "enable_http": True,
                "disabled": False,
            }
            for number, (name, site) in enumerate(engines.items())
        ],
    }
