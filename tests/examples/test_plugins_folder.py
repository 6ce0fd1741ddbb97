import json
from pathlib import Path
from typing import ClassVar

from click.testing import CliRunner
from typing_extensions import override

from antwort.cli.main import root
from antwort.config import ProviderConfig
from antwort.functions import Catalogue, FunctionProvider
from antwort.testing import AppFactory, ProviderContract

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"


def test_a_file_of_functions_is_a_provider(antwort_app: AppFactory) -> None:
    app = antwort_app({"providers": {}, "plugins_dir": PLUGINS})
    (provider,) = app.get("/v1/providers").json()["data"]
    assert (provider["name"], provider["functions"]) == ("text", ["count_words", "slug"])
    assert app.call("count_words", {"text": "one two\nthree"}).value == {"words": 3, "lines": 2, "characters": 13}
    assert app.call("slug", {"title": "  Übung macht den Meister! "}).value == "ubung-macht-den-meister"
    assert app.call("slug", {"title": "A very long title", "max_length": 7}).value == "a-very"


def test_the_command_line_takes_the_folder_as_a_flag(tmp_path: Path) -> None:
    options = ["--plugins-dir", str(PLUGINS), "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(root, ["functions", "call", *options, "count_words", '{"text": "to be"}'])
    assert (done.exit_code, json.loads(done.stdout)["words"]) == (0, 2)


class TestText(ProviderContract):
    calls: ClassVar = {"count_words": {"text": "{canary}"}, "slug": {"title": "About {canary}"}}

    @override
    def make(self) -> FunctionProvider:
        return Catalogue(plugins_dir=PLUGINS).make("text", ProviderConfig())
