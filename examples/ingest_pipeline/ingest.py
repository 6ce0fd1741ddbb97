"""Index a folder of text files into a vector store of antwort, straight into Qdrant. No packages are needed.

    python ingest.py --qdrant http://localhost:6333 --embeddings http://localhost:8081/v1/embeddings \
        --tenant default --store vs_… documents/

It shows the whole contract of an ingestion process: which collection, which point ids, which payload. Parsing and
chunking are as plain as can be; put your own there. antwort must have `vector_backend: qdrant`; if it has
`shared_collection: true`, say `--collection antwort_shared_<dimensions>`.

What goes wrong is one line. The exit code is 0 if every file was indexed, 1 if not, and 2 if the command is wrong.
"""

import argparse
import hashlib
import http.client
import json
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CHUNK = 1000
"""Characters of a chunk."""
OVERLAP = 100
"""Characters that a chunk repeats of the one before it."""
BATCH = 64
"""Chunks that are embedded and written at once."""
KINDS = {".txt", ".md"}
"""Files that are read."""
HINTS = {
    ("--qdrant", 401): "; is --qdrant-key right?",
    ("--qdrant", 403): "; is --qdrant-key right?",
    ("--qdrant", 404): "; is --store right, and does antwort have 'vector_backend: qdrant'?",
    ("--embeddings", 401): "; is --embeddings-key right?",
    ("--embeddings", 403): "; is --embeddings-key right?",
    ("--embeddings", 404): "; is it the whole address, …/v1/embeddings?",
}
"""What a status probably means, by the option that names the server."""


class IngestError(Exception):
    """A file could not be indexed; the text says why, in one line."""


def chunks(text: str) -> Iterator[str]:
    """Cut a text into pieces of at most CHUNK characters, at ends of lines and words where there are any."""
    start = 0
    while start < len(text):
        end = min(start + CHUNK, len(text))
        if end < len(text):
            breaks = (text.rfind(mark, start + CHUNK // 2, end) for mark in ("\n\n", "\n", " "))
            end = next((place for place in breaks if place > 0), end)
        if piece := text[start:end].strip():
            yield piece
        if end == len(text):
            return
        start = max(end - OVERLAP, start + 1)


def send(server: str, method: str, url: str, body: Any, key: str | None = None) -> Any:
    """Send JSON to the server that an option names, and return the JSON that comes back."""
    headers = {"content-type": "application/json"}
    if key:
        headers |= {"authorization": f"Bearer {key}", "api-key": key}
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - the addresses are yours
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            said = " ".join(error.read(500).decode(errors="replace").split())
        raise IngestError(f"{server} answered {error.code}: {said}{HINTS.get((server, error.code), '')}") from None
    except json.JSONDecodeError:
        raise IngestError(f"{server} answered something that is not JSON") from None
    except urllib.error.URLError as error:
        raise IngestError(f"{server} cannot be asked: {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # its text may have the address, and a password
        raise IngestError(f"{server} cannot be asked: {type(error).__name__}; is its address right?") from None


def embed(url: str, model: str | None, key: str | None, texts: Sequence[str]) -> list[list[float]]:
    """Embed texts with the model that antwort embeds queries with."""
    answer = send("--embeddings", "POST", url, {"input": list(texts)} | ({"model": model} if model else {}), key)
    try:
        vectors = [one["embedding"] for one in sorted(answer["data"], key=lambda one: one["index"])]
    except (KeyError, TypeError):
        raise IngestError("--embeddings answered something that is not a list of embeddings") from None
    if len(vectors) != len(texts):
        raise IngestError(f"--embeddings answered {len(vectors)} embeddings for {len(texts)} texts")
    return vectors


def file_id_of(path: Path) -> str:
    """Return the id of a file, which a second run makes again."""
    return "file-" + hashlib.sha256(path.name.encode()).hexdigest()[:24]


def points(path: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Give the points of a file, without vectors.

    Ids are UUIDs that a second run makes again. They are made from the store, too: others may be in the collection.
    """
    file_id = file_id_of(path)
    for index, text in enumerate(chunks(path.read_text(errors="replace"))):
        yield {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{options.store}/{file_id}/{index}")),
            "payload": {
                "text": text,
                "file_id": file_id,
                "filename": path.name,
                "chunk_index": index,
                "tenant": options.tenant,
                "vector_store_id": options.store,
                "attributes": {"kind": path.suffix.lstrip(".") or "text", "characters": len(text)},
            },
        }


def ingest(path: Path, options: argparse.Namespace) -> int:
    """Replace all points of a file; return how many there are now."""
    name = options.collection or f"antwort_{options.store}"
    collection = f"{options.qdrant.rstrip('/')}/collections/{name}/points"
    found = list(points(path, options))
    for start in range(0, len(found), BATCH):
        batch = found[start : start + BATCH]
        texts = [point["payload"]["text"] for point in batch]
        vectors = embed(options.embeddings, options.model, options.embeddings_key, texts)
        for point, vector in zip(batch, vectors, strict=True):
            point["vector"] = vector
        send("--qdrant", "PUT", f"{collection}?wait=true", {"points": batch}, options.qdrant_key)
    # Chunks of an older, longer version of the file; all of them if it is empty now.
    old = [
        {"key": "tenant", "match": {"value": options.tenant}},
        {"key": "vector_store_id", "match": {"value": options.store}},
        {"key": "file_id", "match": {"value": file_id_of(path)}},
        {"key": "chunk_index", "range": {"gte": len(found)}},
    ]
    send("--qdrant", "POST", f"{collection}/delete?wait=true", {"filter": {"must": old}}, options.qdrant_key)
    return len(found)


def run(options: argparse.Namespace) -> int:
    """Index the files of the folder, and say what was done; return the exit code."""
    if not options.folder.is_dir():
        return _complain(f"there is no folder {options.folder}", 2)
    paths = sorted(path for path in options.folder.iterdir() if path.suffix in KINDS and not path.is_dir())
    if not paths:
        kinds = " or ".join(sorted(KINDS, reverse=True))
        return _complain(f"there is no {kinds} file in {options.folder}; folders below it are not read", 1)
    for done, path in enumerate(paths):
        try:
            count = ingest(path, options)
        except (IngestError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            return _complain(f"{path.name}: {reason} ({done} of {len(paths)} files indexed)", 1)
        print(f"{path.name}: {count} chunks")
    return 0


def _complain(problem: str, code: int) -> int:
    print(f"ingest.py: {problem}", file=sys.stderr)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description="Index text files into a vector store, straight into Qdrant.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--store", required=True, help="the id of the vector store, vs_…")
    parser.add_argument("--collection", help="if it is not the store's own: antwort_shared_<dimensions>")
    parser.add_argument("--tenant", default="default", help="whose it is; `default` if antwort has no authentication")
    parser.add_argument("--qdrant", default="http://localhost:6333")
    parser.add_argument("--qdrant-key")
    parser.add_argument("--embeddings", required=True, help="the whole address, …/v1/embeddings")
    parser.add_argument("--embeddings-key")
    parser.add_argument("--model", help="the embedding model")
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
