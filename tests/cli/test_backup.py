"""`antwort backup` and `antwort restore`: what a server kept is served again."""

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from openai import AuthenticationError, OpenAI
from tests.support.postgres import PostgresServer

from antwort.cli import backup as command

Cli = Callable[..., Result]
Listening = Callable[..., tuple[subprocess.Popen[str], list[str]]]
Refused = Callable[..., str]
Write = Callable[[str], Path]

TOOLS: Any = [{"type": "function", "name": "calculate"}]
TEXT = "# Tea\n\nGreen tea is brewed at eighty degrees.\n"


@pytest.fixture(autouse=True)
def demo_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has keys is answered by the demo model only by name."""
    monkeypatch.setenv("ANTWORT_BACKENDS__DEFAULT__URL", "demo")
    for provider in ("BASICS", "FILES", "FILE_SEARCH"):
        monkeypatch.setenv(f"ANTWORT_PROVIDERS__{provider}__ENABLED", "true")


@pytest.fixture(params=["sqlite", "postgresql"])
def databases(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Have commands use the database of before, and that of after."""
    if request.param == "sqlite":
        yield (lambda: None, lambda: None)
        return
    request.getfixturevalue("postgres_programs")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    urls = [server.create(), server.create()]
    before, after = (lambda url=url: monkeypatch.setenv("ANTWORT_STORAGE__URL", url) for url in urls)
    yield before, after
    for url in urls:
        server.drop(url)


Databases = tuple[Callable[[], None], Callable[[], None]]


def client_of(banner: list[str], key: str = "none") -> OpenAI:
    return OpenAI(base_url=f"{banner[-1].removeprefix('Listening on ')}/v1", api_key=key, max_retries=0)


def stopped(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=60)


def found(client: OpenAI, store: str, question: str) -> list[str]:
    """Return the texts that a vector store has for a question, the best first."""
    return [hit.content[0].text for hit in client.vector_stores.search(store, query=question).data]


def test_what_a_server_kept_is_served_again(cli: Cli, listening: Listening, databases: Databases) -> None:
    before, after = databases
    before()
    key = cli("keys", "new", "--tenant", "acme").stdout.strip()
    server, banner = listening()
    client = client_of(banner, key)
    response = client.responses.create(input="What is 12*7?", tools=TOOLS)
    conversation = client.conversations.create(items=[{"type": "message", "role": "user", "content": "Hello"}])
    file = client.files.create(file=("tea.md", TEXT.encode()), purpose="assistants")
    store = client.vector_stores.create(name="docs")
    assert client.vector_stores.files.create_and_poll(file.id, vector_store_id=store.id).status == "completed"
    compacted = client.responses.compact(model="antwort-demo", input="What is 12*8?")
    backed_up = cli("backup", "backup.tar.gz", "--json")
    assert backed_up.exit_code == 0, backed_up.output
    told = json.loads(backed_up.stdout)
    assert (told["file"], told["size"]) == ("backup.tar.gz", Path("backup.tar.gz").stat().st_size)
    assert stat.S_IMODE(Path("backup.tar.gz").stat().st_mode) == 0o600
    client.responses.delete(response.id)
    client.files.delete(file.id)
    client.vector_stores.delete(store.id)
    stopped(server)

    after()
    restored = cli("restore", "backup.tar.gz", "--data-dir", "restored")
    assert restored.exit_code == 0, restored.output
    assert restored.stdout.startswith(f"Restored {told['parts']:,} parts of {told['content']:,} bytes")
    server, banner = listening("--data-dir", "restored")
    with pytest.raises(AuthenticationError):
        client_of(banner, "ak_wrong").responses.retrieve(response.id)
    client = client_of(banner, key)
    assert client.responses.retrieve(response.id) == response
    assert [item.type for item in client.conversations.items.list(conversation.id)] == ["message"]
    assert client.files.content(file.id).read() == TEXT.encode()
    assert client.vector_stores.retrieve(store.id).file_counts.completed == 1
    assert "eighty degrees" in found(client, store.id, "green tea")[0]
    going_on = client.responses.create(input="And 12*9?", previous_response_id=response.id, tools=TOOLS)
    assert going_on.output_text == "The result for 12*9 is 108."
    carried: Any = [item.model_dump() for item in compacted.output]
    assert client.responses.create(input=[*carried, {"role": "user", "content": "Hello"}]).status == "completed"
    more = client.files.create(file=("milk.md", b"# Milk\n\nMilk is white.\n"), purpose="assistants")
    assert client.vector_stores.files.create_and_poll(more.id, vector_store_id=store.id).status == "completed"
    assert "white" in found(client, store.id, "milk")[0]


def test_files_that_become_searchable_meanwhile_are_in_a_backup_whole_or_waiting(
    cli: Cli, listening: Listening
) -> None:
    server, banner = listening()
    client = client_of(banner)
    store = client.vector_stores.create(name="docs").id
    files = [
        client.files.create(file=(f"{n}.md", f"# Thing {n}\n\nIt is word{n}.\n".encode()), purpose="assistants").id
        for n in range(8)
    ]
    client.vector_stores.file_batches.create(store, file_ids=files)
    assert cli("backup", "backup.tar.gz").exit_code == 0
    stopped(server)
    assert cli("restore", "backup.tar.gz", "--data-dir", "restored").exit_code == 0
    server, banner = listening("--data-dir", "restored")
    client = client_of(banner)
    for file in files:  # those that were not ready go on where they were
        assert client.vector_stores.files.poll(file, vector_store_id=store).status == "completed"
    for each in range(8):
        assert re.search(rf"\bword{each}\b", found(client, store, f"word{each}")[0])


def test_a_live_server_is_not_restored_to(cli: Cli, listening: Listening, refused: Refused) -> None:
    _, banner = listening()
    assert cli("backup", "backup.tar.gz").exit_code == 0
    told = refused("restore", "backup.tar.gz")
    assert told.startswith(f"A server runs on .antwort ({banner[-1].removeprefix('Listening on ')}). Stop it")
    assert cli("restore", "backup.tar.gz", "--dry-run").exit_code == 0


def test_refusals_are_one_line(cli: Cli, refused: Refused) -> None:
    assert "There is no database yet" in refused("backup", "backup.tar.gz")
    cli("db", "upgrade")
    cli("backup", "backup.tar.gz")
    assert "There is a file of this name already" in refused("backup", "backup.tar.gz")
    assert "This is in the data folder" in refused("backup", ".antwort/backup.tar.gz")
    assert refused("backup", "away/backup.tar.gz").startswith("away: There is no such folder.")
    assert "The data folder is not empty ('antwort.db' is in it)" in refused("restore", "backup.tar.gz")
    Path("none.tar.gz").write_text("none")
    assert "is damaged, cut off, or none" in refused("restore", "none.tar.gz", "--data-dir", "new")
    assert "No such file" in refused("restore", "missing.tar.gz", "--data-dir", "new")
    assert not Path("new").exists()


def test_what_is_not_in_an_archive_is_a_warning(cli: Cli, config: Write) -> None:
    config("storage:\n  s3:\n    bucket: our-files\n")
    cli("db", "upgrade")
    Path(".antwort/link").symlink_to("elsewhere")
    made = cli("backup", "backup.tar.gz")
    assert made.exit_code == 0
    assert "'.antwort/link' is left out" in made.stderr
    bucket = "not in the archive: the content of clients' files is in the bucket 'our-files', and stays there"
    assert bucket in made.stderr
    assert "keep it where nobody else reads it" in made.stderr
    looked = cli("restore", "backup.tar.gz", "--dry-run")
    assert looked.stdout.startswith("backup.tar.gz is sound: 1 part of ")
    assert bucket in looked.stderr
    assert json.loads(cli("restore", "backup.tar.gz", "--data-dir", "new", "--json").stdout)["dry_run"] is False


def test_long_work_says_how_far_it_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TELL_EVERY", 0.0)
    cli("db", "upgrade")
    Path(".antwort/blobs").mkdir()
    Path(".antwort/blobs/large").write_bytes(os.urandom(3_000_000))
    told = cli("backup", "backup.tar.gz").stderr
    assert re.search(r"^… [1-9][\d,]* bytes, data/blobs/large$", told, re.MULTILINE)
    assert re.search(r"^… [1-9][\d,]* bytes, database$", told, re.MULTILINE)
    restored = cli("restore", "backup.tar.gz", "--data-dir", "new")
    assert re.search(r"^… [1-9][\d,]* bytes, data/blobs/large$", restored.stderr, re.MULTILINE)
