"""A real S3 server for tests, moto's: a process of its own, in an environment of its own, one for each that runs tests.

`s3_server` is the server, `bucket` a new bucket on it; whoever asks for it has credentials in the environment.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.werkzeug import serving

from antwort.config import S3Config

__all__ = ["Bucket", "S3Server", "bucket", "s3_server"]

PROGRAM = Path(__file__).parents[2] / ".venv-moto" / "bin" / "moto_server"
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request"}
"""Enough for this server, which believes everybody."""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "of no use elsewhere"}


class S3Server:
    """A server, as one sees it from outside."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, headers=SIGNED)
        self._names = (f"bucket-{number}" for number in itertools.count())
        self.url = url

    def create(self) -> "Bucket":
        """Create a bucket."""
        made = Bucket(self.url, next(self._names), self._client)
        made.ask("PUT")
        return made

    def close(self) -> None:
        self._client.close()


class Bucket:
    """A bucket, as one sees it from outside."""

    def __init__(self, url: str, name: str, client: httpx.Client) -> None:
        self.name = name
        self.settings = S3Config(bucket=name, prefix="kept/files/", endpoint=url)
        self._client = client

    def ask(self, method: str, query: str = "") -> str:
        """Send the server a request about the bucket, or an object of it, and return what it says."""
        return self._client.request(method, f"/{self.name}{query}").raise_for_status().text

    def objects(self) -> list[str]:
        """Return the keys of what is in it."""
        return sorted(re.findall("<Key>(.*?)</Key>", self.ask("GET", "?list-type=2")))

    def unfinished(self) -> int:
        """Return how many objects are begun, and neither complete nor given up."""
        return self.ask("GET", "?uploads").count("<UploadId>")

    def empty(self) -> None:
        """Delete all that is in it."""
        for key in self.objects():
            self.ask("DELETE", f"/{key}")

    def delete(self) -> None:
        """Delete the bucket."""
        self.ask("DELETE")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server."""
    assert PROGRAM.exists(), "there is no S3 server; run 'scripts/setup dev'"
    with (
        serving([PROGRAM], tmp_path_factory.mktemp("s3"), CREDENTIALS) as url,
        contextlib.closing(S3Server(url)) as server,
    ):
        yield server


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_server.create()
