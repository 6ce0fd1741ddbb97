"""The process that reads one file: `python -m antwort.documents.child`.

Its standard input is a line of JSON with the name of the file, then the file; its output an answer in MessagePack.
"""

import sys

import msgspec

from antwort.documents.document import Document, Problem, UnreadableError
from antwort.documents.parsing import parsed


class Answer(msgspec.Struct):
    """What the process says: a document, or why there is none."""

    document: Document | None = None
    problem: Problem = "invalid_file"
    reason: str = ""


def answer(data: bytes, filename: str) -> Answer:
    """Read a file; whatever a reader stumbles over is a reason."""
    try:
        return Answer(parsed(data, filename))
    except UnreadableError as error:
        return Answer(problem=error.problem, reason=str(error))
    except MemoryError:
        return Answer(reason="It needs more memory than reading one file may use.")
    except ImportError as error:
        hint = "a package that is not installed on the server: pip install 'antwort[files]'"
        return Answer(problem="unsupported_file", reason=f"Reading it needs {hint} ({error.name} is missing).")
    except Exception as error:  # noqa: BLE001 - files of strangers find every flaw of a reader
        return Answer(reason=f"It is damaged, or not what its name says ({type(error).__name__}).")


def main() -> None:
    """Answer to what comes over standard input."""
    stream = sys.stdin.buffer
    filename = msgspec.json.decode(stream.readline(), type=str)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(stream.read(), filename)))


if __name__ == "__main__":
    main()
