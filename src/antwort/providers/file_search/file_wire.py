"""What travels about the files of vector stores: the bodies of requests, and the objects that answer them."""

from typing import Annotated, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from antwort.provider import BaseModel, Field
from antwort.providers.file_search.ingestion.store_files import FileProgress, FileStatus, StatusCounts, StoreFile
from antwort.providers.file_search.wire import AttachFile, Attributes, ChunkingStrategy, FileCounts, FileId, StoreBody

MOST_FILES = 2000
"""Files of one batch."""


class UpdateFile(StoreBody):
    """What to change about a file of a vector store."""

    attributes: Attributes | None = Field(description="The new attributes, all of them; null for none.")


class CreateBatch(StoreBody):
    """Files to attach to a vector store together."""

    file_ids: Annotated[list[FileId], Field(min_length=1, max_length=MOST_FILES)] | None = Field(
        default=None, description="Files that are all treated in the same way."
    )
    files: Annotated[list[AttachFile], Field(min_length=1, max_length=MOST_FILES)] | None = Field(
        default=None, description="Files, each with attributes and a chunking strategy of its own."
    )
    attributes: Attributes | None = None
    chunking_strategy: ChunkingStrategy | None = None

    @model_validator(mode="after")
    def _names_files_once(self) -> "CreateBatch":
        if (self.file_ids is None) == (self.files is None):
            raise PydanticCustomError("files", "either 'file_ids' or 'files' is needed, and not both")
        return self

    def wanted(self) -> list[AttachFile]:
        """Return what is to be attached, each file once."""
        if self.files is not None:
            return list({file.file_id: file for file in self.files}.values())
        return [
            AttachFile(file_id=file_id, attributes=self.attributes, chunking_strategy=self.chunking_strategy)
            for file_id in dict.fromkeys(self.file_ids or ())
        ]


class FileProblem(BaseModel):
    """Why a file failed."""

    code: str
    message: str


class StaticChunkingShown(BaseModel):
    """Sizes of chunks, in tokens."""

    max_chunk_size_tokens: int
    chunk_overlap_tokens: int


class ChunkingShown(BaseModel):
    """How a file is cut."""

    type: Literal["static"] = "static"
    static: StaticChunkingShown


class StatusDetails(BaseModel):
    """How far a file is that is `in_progress`, or what was not read of one that is `completed`; antwort's own."""

    phase: Literal["waiting", "reading", "embedding", "done"] = Field(description="What happens to it now.")
    pages: int | None = Field(description="Pages that were read; null if it has none, or is not read yet.")
    chunks: int | None = Field(description="Chunks that it has; null until it is read.")
    chunks_embedded: int = Field(description="Chunks that are embedded and written.")
    warnings: list[str] = Field(
        default=[], description="What of the file was not read, such as pages that are pictures; each a sentence."
    )

    @classmethod
    def of(cls, file: StoreFile, progress: FileProgress | None) -> "StatusDetails | None":
        """Show how far a file is, without `progress` if no worker has it; None if there is nothing to be said."""
        done = file.value.indexed
        if file.status == "completed" and done is not None and done.warnings:
            return cls(
                phase="done",
                pages=done.pages or None,
                chunks=done.chunks,
                chunks_embedded=done.chunks,
                warnings=done.warnings,
            )
        if file.status != "in_progress":
            return None
        if progress is None:
            return cls(phase="waiting", pages=None, chunks=None, chunks_embedded=0)
        return cls(
            phase="reading" if progress.chunks is None else "embedding",
            pages=progress.pages or None,
            chunks=progress.chunks,
            chunks_embedded=progress.written,
        )


class VectorStoreFile(BaseModel):
    """A file of a vector store."""

    id: str
    object: Literal["vector_store.file"] = "vector_store.file"
    created_at: int
    vector_store_id: str
    status: FileStatus
    usage_bytes: int
    last_error: FileProblem | None
    attributes: dict[str, str | int | float | bool]
    chunking_strategy: ChunkingShown
    language: str | None = Field(
        default=None,
        description="What it is written in, such as `de`; null if that cannot surely be told, or is not known yet. Not "
        "OpenAI's.",
    )
    status_details: StatusDetails | None = Field(
        default=None,
        description="How far it is, while it is `in_progress`; if something of it was not read, what. Not OpenAI's.",
    )

    @classmethod
    def of(cls, file: StoreFile, progress: FileProgress | None) -> "VectorStoreFile":
        """Show a file, and how far it is if a worker has it."""
        value, chunking, problem = file.value, file.value.chunking, file.problem
        sizes = StaticChunkingShown(max_chunk_size_tokens=chunking.size, chunk_overlap_tokens=chunking.overlap)
        return cls(
            id=value.file_id,
            created_at=file.kept.created_at,
            vector_store_id=file.store_id,
            status=file.status,
            usage_bytes=0 if value.indexed is None else value.indexed.usage_bytes,
            last_error=None if problem is None else FileProblem(code=problem["code"], message=problem["message"]),
            attributes=value.attributes,
            chunking_strategy=ChunkingShown(static=sizes),
            language=(value.indexed.language if value.indexed is not None else "") or None,
            status_details=StatusDetails.of(file, progress),
        )


class VectorStoreFileList(BaseModel):
    """A page of files of a vector store."""

    object: Literal["list"] = "list"
    data: list[VectorStoreFile]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, data: list[VectorStoreFile], *, more: bool) -> "VectorStoreFileList":
        """Make a page of files."""
        ids = [file.id for file in data]
        return cls(data=data, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None, has_more=more)


class DeletedVectorStoreFile(BaseModel):
    """A file that is in a vector store no more."""

    id: str
    object: Literal["vector_store.file.deleted"] = "vector_store.file.deleted"
    deleted: bool = True


class FileText(BaseModel):
    """Text of a file."""

    type: Literal["text"] = "text"
    text: str


class FileContent(BaseModel):
    """What a file says, as it was read."""

    object: Literal["vector_store.file_content.page"] = "vector_store.file_content.page"
    file_id: str
    filename: str
    attributes: dict[str, str | int | float | bool]
    data: list[FileText]
    has_more: bool = False
    next_page: str | None = None


class FileBatch(BaseModel):
    """Files that were attached together."""

    id: str
    object: Literal["vector_store.files_batch"] = "vector_store.files_batch"
    created_at: int
    vector_store_id: str
    status: FileStatus
    file_counts: FileCounts


def counted(counts: StatusCounts) -> FileCounts:
    """Show counts."""
    return FileCounts(
        in_progress=counts.in_progress,
        completed=counts.completed,
        cancelled=counts.cancelled,
        failed=counts.failed,
        total=counts.total,
    )
