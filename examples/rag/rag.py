"""From a folder with a PDF, a DOCX, an HTML and a Markdown file to cited answers, in one command.

    python examples/rag/rag.py
    python examples/rag/rag.py --folder ~/papers --backend http://localhost:11434/v1 "What did we agree on?"

It runs offline: vectors are kept in a folder, a small model in process embeds, and the built-in demo model repeats what
is found. With `--backend` a real one answers. It needs the extra `files`, and the `openai` package for the client.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

try:
    from openai import OpenAI
    from openai.types.responses import Response
except ModuleNotFoundError:
    sys.exit(f"The client of this example is not installed: {sys.executable} -m pip install openai")

HERE = Path(__file__).resolve().parent
ANTWORT = [sys.executable, "-m", "antwort"]
STORE = "workshop"
SOME_FAILED = 1
"""The exit code of `antwort ingest` if files cannot be read; the others can be found."""
QUESTIONS = [
    "What is done with a swollen battery?",
    "How long may a trailer be kept?",
    "Where does the ferry stop?",
    "When is a chain replaced?",
]
"""One for each of the documents."""


@contextlib.contextmanager
def serving(backend: str | None) -> Iterator[str]:
    """Start the server in an empty folder, on a free port; give its address."""
    options = ["--config", str(HERE / "antwort.yaml"), "--port", "0", "--log-level", "error"]
    options += ["--backend", backend] if backend else ["--no-probe"]  # the demo model, whatever runs here
    command = [*ANTWORT, "serve", *options]
    with (
        tempfile.TemporaryDirectory() as data,
        subprocess.Popen(command, cwd=data, stdout=subprocess.PIPE, text=True) as server,  # noqa: S603 - it is ours
    ):
        try:
            address = next((line.split()[-1] for line in server.stdout or () if line.startswith("Listening on ")), None)
            if address is None:
                sys.exit("The server has not started.")
            yield address
        finally:
            server.terminate()


def ingest(folder: Path, address: str) -> None:
    """Bring a folder into a vector store, and wait until all of it can be found; what cannot be read is told."""
    command = [*ANTWORT, "ingest", str(folder), "--store", STORE, "--url", address]
    if subprocess.run(command, check=False).returncode not in {0, SOME_FAILED}:  # noqa: S603 - it is ours
        sys.exit("Nothing can be asked.")


def cited_files(response: Response) -> list[str]:
    """Return the ids of the files that an answer cites, each once, in the order of their numbers."""
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    notes = [note for part in parts if part.type == "output_text" for note in part.annotations]
    return list(dict.fromkeys(note.file_id for note in notes if note.type == "file_citation"))


def ask(client: OpenAI, store_id: str, question: str) -> None:
    """Ask a question, and print the answer with the files that it cites."""
    response = client.responses.create(
        input=question,
        instructions="Answer from the files, in one sentence, and cite them.",
        tools=[{"type": "file_search", "vector_store_ids": [store_id]}],
    )
    print(f"\n{question}\n{response.output_text}")
    for file_id in cited_files(response):
        file = client.files.retrieve(file_id)
        print(f"  from {file.filename}, {file.bytes:,} bytes")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve, bring the folder in, and ask."""
    parser = argparse.ArgumentParser(description="From a folder to cited answers.")
    parser.add_argument("questions", nargs="*", default=QUESTIONS, metavar="question")
    parser.add_argument("--folder", type=Path, default=HERE / "documents")
    parser.add_argument("--backend", metavar="URL", help="a model server, such as http://localhost:11434/v1")
    given = parser.parse_args(arguments)
    with serving(given.backend) as address, OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        ingest(given.folder, address)
        store = next(store for store in client.vector_stores.list() if store.name == STORE)
        for question in given.questions:
            ask(client, store.id, question)


if __name__ == "__main__":
    main()
