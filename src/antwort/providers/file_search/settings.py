"""What an operator can set."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import PositiveInt, field_validator, model_validator

from antwort.extensions import EMBEDDINGS, RERANKERS, VECTOR_DATABASES, Choice
from antwort.provider import Duration, Field, SecretStr, Settings

_POSTGRESQL = re.compile(r"postgres(ql)?(\+psycopg)?://")
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

_OF_SERVICE = {
    ("embedding_url", "embedding"): (
        "embedding_model",
        "embedding_api_key",
        "embedding_dimensions",
        "embedding_max_tokens",
    ),
    ("rerank_url", "reranker"): ("rerank_model", "rerank_api_key", "rerank_max_tokens"),
}
"""Settings that mean nothing without the address of their service, unless that is chosen by its name."""


class QdrantSettings(Settings):
    """A Qdrant server."""

    url: str = Field(
        default="http://localhost:6333",
        pattern=r"^https?://",
        description="Address of its REST API; without a port, 6333 is meant, with https too.",
    )
    api_key: SecretStr | None = Field(default=None, description="The key it wants.")
    timeout: Duration = Field(default=10.0, description="Time that one request may take.")
    shards: PositiveInt | None = Field(
        default=None, description="Shards of a new collection; Qdrant's own if not given."
    )
    segments: PositiveInt | None = Field(
        default=None,
        description="Segments of a new collection; if not given, one for the collection of a single vector store, as "
        "each costs the server dozens of memory maps, and Qdrant's own number for a shared one.",
    )
    replication: PositiveInt | None = Field(
        default=None, description="Copies of each shard of a new collection; Qdrant's own if not given."
    )
    write_consistency: PositiveInt | None = Field(
        default=None, description="Copies that must have a write before it counts; Qdrant's own if not given."
    )
    on_disk: bool = Field(default=False, description="Keep the vectors of new collections on disk, not in memory.")
    indexed_attributes: dict[str, Literal["keyword", "float", "bool"]] = Field(
        default_factory=dict,
        description="Attributes that filters use often, and their types: they get an index in new collections.",
    )


class PgvectorSettings(Settings):
    """A PostgreSQL database with the extension `vector`."""

    url: SecretStr | None = Field(
        default=None,
        description="Its URL, such as postgresql://user@host/name; without one, what PGHOST, PGDATABASE and so on say.",
    )
    pool_size: PositiveInt = Field(default=8, description="Connections at most.")
    timeout: Duration = Field(default=10.0, description="Time that one statement may take.")

    @field_validator("url")
    @classmethod
    def _is_one_of_postgresql(cls, url: SecretStr | None) -> SecretStr | None:
        """Refuse what the driver could not read, as it says so with the password; drop what only SQLAlchemy reads."""
        if url is None:
            return None
        text = url.get_secret_value()
        if not _POSTGRESQL.match(text):
            raise ValueError("must look like postgresql://user@host/name")
        if _BARE_PERCENT.search(text):
            raise ValueError("has a '%' that stands for itself; write it as '%25'")
        return SecretStr(text.replace("+psycopg://", "://", 1))


class FileSearchSettings(Settings):
    """Where documents are, and how a query becomes a vector."""

    vector_backend: Annotated[Choice, VECTOR_DATABASES] = Field(
        default="embedded", description="Where vectors are kept: in the data folder, in Qdrant, or in PostgreSQL."
    )
    qdrant: QdrantSettings = Field(default_factory=QdrantSettings, description="The Qdrant server.")
    pgvector: PgvectorSettings = Field(default_factory=PgvectorSettings, description="The PostgreSQL database.")
    shared_collection: bool = Field(
        default=False,
        description="Keep all vector stores in one collection, told apart by payload: for very many.",
    )
    max_stores: int = Field(
        default=1000,
        ge=1,
        le=1000,
        description="Vector stores that a tenant may have.",
    )
    embedding: Annotated[Choice, EMBEDDINGS] | None = Field(
        default=None,
        description="What embeds: a small model in this process, a service, or another; if not given, as "
        "`embedding_url` says.",
    )
    embedding_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="The whole address of an OpenAI-compatible endpoint, such as http://localhost:8081/v1/embeddings; "
        "if not given, a small model in this process embeds. Behind a # it may name the model: "
        "http://localhost:11434/v1/embeddings#bge-m3.",
    )
    embedding_model: str | None = Field(
        default=None, description="The model to ask that endpoint for, if the address does not name it."
    )
    embedding_api_key: SecretStr | None = Field(default=None, description="The key that endpoint wants.")
    embedding_dimensions: PositiveInt | None = Field(
        default=None, description="The length of vectors to ask that endpoint for, if its model can choose."
    )
    embedding_max_tokens: PositiveInt | None = Field(
        default=None,
        ge=16,
        description="Tokens that the model of that endpoint reads at once; a longer text is embedded in windows. If "
        "not given, one that the endpoint refuses as too long is; set it for one that cuts texts in silence.",
    )
    embedding_timeout: Duration = Field(default=10.0, description="Time that one request to it may take.")
    embedding_retries: int = Field(default=2, ge=0, le=5, description="Tries after a failure that may pass.")
    embedding_batch: int = Field(default=32, ge=1, le=2048, description="Texts in one request to that endpoint.")
    max_results: int = Field(
        default=40,
        ge=1,
        le=50,
        description="Results of the tool at most, unless the request says how many; from the tenth on, only as far as "
        "all have 20,000 characters together.",
    )
    hybrid: bool = Field(
        default=True,
        description="Search by meaning and by words, where a request says neither how nor which score is the least.",
    )
    join_neighbours: bool = Field(
        default=True,
        description="Make one result of chunks of an attached file that overlap, or follow each other in it and in "
        "rank, without what they repeat.",
    )
    reranker: Annotated[Choice, RERANKERS] | None = Field(
        default=None, description="What ranks results a second time; if not given, as `rerank_url` says."
    )
    rerank_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="The whole address of a service that ranks results a second time, such as "
        "http://localhost:8082/v1/rerank; if not given, there is no second ranking.",
    )
    rerank_model: str | None = Field(default=None, description="The model to ask that service for.")
    rerank_api_key: SecretStr | None = Field(default=None, description="The key that service wants.")
    rerank_candidates: int = Field(
        default=30, ge=1, le=200, description="Results that are ranked a second time; the best of them are returned."
    )
    rerank_max_tokens: PositiveInt | None = Field(
        default=None,
        ge=16,
        description="Tokens of a result that are sent to that service; set it for one that refuses long texts.",
    )
    rerank_timeout: Duration = Field(
        default=5.0, description="Time that ranking may take, beside that of the search; then the first ranking counts."
    )
    timeout: Duration = Field(default=30.0, description="Time a search may take.")
    reconcile: Duration = Field(
        default=300.0, description="Time between looks for what a crash left unfinished, and for expired stores."
    )
    chunk_size: PositiveInt = Field(
        default=512, description="Read, and not used: each file says how it is cut, or is cut by the strategy `auto`."
    )
    ingestion_workers: int = Field(
        default=1,
        ge=0,
        le=64,
        description="Processes that `antwort serve` starts to read and embed files, when there are any; 0 if "
        "`antwort ingest watch` does that.",
    )

    files_at_once: int = Field(
        default=3,
        ge=1,
        le=64,
        description="Files that one of these processes works on at once.",
    )
    max_waiting_files: PositiveInt = Field(
        default=10_000, description="Files of a tenant that wait to be made searchable; further ones are refused (429)."
    )
    max_chunks: PositiveInt = Field(
        default=25_000, description="Chunks of one file; one that has more cannot be made searchable."
    )
    max_parsing_time: Duration = Field(default=120.0, gt=0, description="Time that reading one file may take.")
    ocr: Literal["auto", "off"] = Field(
        default="auto",
        description="Recognise the text of pages that are pictures: if the program tesseract is installed, or never.",
    )
    ocr_languages: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]] = Field(
        default=[],
        max_length=10,
        description="Languages of that text, as tesseract calls them, such as eng and deu; if not given, those that "
        "are installed, or eng if these are more than four.",
    )
    max_ocr_time: Duration = Field(
        default=600.0,
        gt=0,
        description="Time that recognising the text of one file may take; pages that are left then are named in a "
        "warning.",
    )
    max_ingestion_time: Duration = Field(
        default=7200.0, gt=0, description="Time that making one file searchable may take, waiting for others included."
    )

    @model_validator(mode="after")
    def _uses_what_is_set(self) -> Self:
        """Refuse settings of a server that is never asked: whoever wrote them thinks that it is.

        A backend that is named is meant, whatever else is set.
        """
        for name, server in (("qdrant", self.qdrant), ("pgvector", self.pgvector)):
            if server.model_fields_set and "vector_backend" not in self.model_fields_set:
                raise ValueError(
                    f"'{name}' is set, but vectors are kept in the data folder; add 'vector_backend: {name}'"
                )
        for (url, chosen), keys in _OF_SERVICE.items():
            for key in keys if getattr(self, url) is None and getattr(self, chosen) is None else ():
                if getattr(self, key) is not None:
                    raise ValueError(f"'{key}' has no effect without '{url}'; add the address of that service")
        return self

    def sections(self) -> dict[str, Any]:
        """Return the sections of what can be chosen, by name."""
        return {name: value for name, value in self if isinstance(value, Settings)}

    def of(self, prefix: str) -> dict[str, Any]:
        """Return the settings whose names begin like this, by the rest of these names."""
        return {name.removeprefix(prefix): value for name, value in self if name.startswith(prefix)}
