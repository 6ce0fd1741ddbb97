from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from antwort.config import Config, load_config

Cli = Callable[..., Result]


def test_the_file_it_writes_loads_to_the_defaults_and_names_the_providers(cli: Cli) -> None:
    result = cli("init")
    assert (result.exit_code, result.stdout) == (0, "Wrote antwort.yaml. Start the server with 'antwort serve'.\n")
    assert load_config(Path("antwort.yaml"), environ={}).config == Config()
    text = Path("antwort.yaml").read_text(encoding="utf-8")
    assert "#basics:" in text
    assert "#web_search:" in text
    assert cli("check").exit_code == 0


def test_a_file_that_is_there_is_kept(cli: Cli, refused: Callable[..., str]) -> None:
    Path("antwort.yaml").write_text("data_dir: mine\n", encoding="utf-8")
    assert refused("init") == "antwort.yaml: there is a file already; replace it with --force"
    assert Path("antwort.yaml").read_text(encoding="utf-8") == "data_dir: mine\n"
    assert cli("init", "--force").exit_code == 0
    assert Path("antwort.yaml").read_text(encoding="utf-8") != "data_dir: mine\n"


def test_another_path_is_repeated_in_the_command_to_start(cli: Cli) -> None:
    assert "'antwort serve --config other.yaml'" in cli("init", "other.yaml").stdout


def test_a_path_that_cannot_be_written_is_named(refused: Callable[..., str]) -> None:
    line = refused("init", "no/such/folder.yaml")
    assert line == "no/such/folder.yaml: cannot write the file: No such file or directory"
