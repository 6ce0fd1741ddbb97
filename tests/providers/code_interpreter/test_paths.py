"""Where the files of a container are: at `/mnt/data`, as OpenAI's models expect, and at `/workspace`."""

from pathlib import Path
from typing import Any

from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from tests.providers.code_interpreter.stage import TOOL, calls, executed, outputs, running_code, staged

from antwort.testing import turn


def test_code_finds_its_files_in_both_places(tmp_path: Path) -> None:
    write = (
        "open('/mnt/data/a.txt', 'w').write('a')\nopen('/workspace/b.txt', 'w').write('b')\nopen('c.txt', 'w').close()"
    )
    _, read = executed(
        tmp_path,
        write,
        "import os\n[open('/mnt/data/b.txt').read(), open('/workspace/a.txt').read(), os.listdir('/mnt')]",
    )
    assert read == "['b', 'a', ['data']]"


def test_code_finds_uploaded_files_in_both_places_and_clients_read_where(tmp_path: Path) -> None:
    code = "[open(f'{home}/data.csv').read() for home in ('/mnt/data', '/workspace', '.')]"
    with staged(tmp_path, running_code(code)) as stage:
        client = stage.client()
        container = client.containers.create(name="one").id
        made = [
            client.containers.files.create(container, file=(f"{home}/data.csv", b"a,b"))
            for home in ("/mnt/data", "/workspace")
        ]
        assert {(file.id, file.path) for file in made} == {(made[0].id, "/mnt/data/data.csv")}
        tool: Any = {"type": "code_interpreter", "container": container}
        client.responses.create(model="m", input="Go.", tools=[tool])
        assert outputs(stage)[-1] == "['a,b', 'a,b', 'a,b']"


def test_links_to_both_places_are_citations_of_the_file(tmp_path: Path) -> None:
    links = ["sandbox:/mnt/data/out/sum.txt", "sandbox:/workspace/out/sum.txt"]
    code = "import os\nos.mkdir('/mnt/data/out')\n_ = open('/mnt/data/out/sum.txt', 'w').write('10')"
    steps = [
        *running_code(code, answer=f"[It]({links[0]}), or [it]({links[1]})."),
        turn(f"Again: {links[0]} and {links[1]}"),
    ]
    with staged(tmp_path, steps) as stage:
        client = stage.client()
        first = client.responses.create(model="m", input="Go.", tools=[TOOL])
        (file,) = client.containers.files.list(calls(first)[0].container_id).data
        assert file.path == "/mnt/data/out/sum.txt"
        later = client.responses.create(model="m", input="Again.", tools=[TOOL], previous_response_id=first.id)
        for answer in (first, later):
            message = answer.output[-1]
            assert isinstance(message, ResponseOutputMessage)
            text = message.content[0]
            assert isinstance(text, ResponseOutputText)
            cited: list[Any] = list(text.annotations)
            assert [text.text[one.start_index : one.end_index] for one in cited] == links
            assert {(one.type, one.file_id) for one in cited} == {("container_file_citation", file.id)}
