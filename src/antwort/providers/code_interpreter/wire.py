"""The shapes of `/v1/containers`, as OpenAI's clients read them."""

from typing import Any, Literal

from pydantic import ConfigDict

from antwort.provider import BaseModel, Field
from antwort.providers.code_interpreter.containers import Container
from antwort.providers.code_interpreter.files import File
from antwort.providers.code_interpreter.memory import MemoryLimit, memory_bytes, memory_name
from antwort.providers.code_interpreter.settings import CodeInterpreterSettings


class _ContainerBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ContainerExpiry(_ContainerBody):
    """How long a container is kept."""

    anchor: Literal["last_active_at"] = "last_active_at"
    minutes: int = Field(ge=1, le=525_600, description="Minutes after its last use.")


class NoNetwork(_ContainerBody):
    """Nothing can be reached."""

    type: Literal["disabled"]


class DomainSecret(_ContainerBody):
    """A secret for a domain."""

    domain: str
    name: str
    value: str


class SomeNetwork(_ContainerBody):
    """Some domains can be reached."""

    type: Literal["allowlist"]
    allowed_domains: list[str]
    domain_secrets: list[DomainSecret] | None = None


class CreateContainer(_ContainerBody):
    """A container to be made."""

    name: str = Field(min_length=1, max_length=256)
    expires_after: ContainerExpiry | None = None
    memory_limit: MemoryLimit | None = Field(default=None, description="Not more than the operator allows.")
    file_ids: list[str] | None = Field(default=None, max_length=50, description="Files to begin with, by their ids.")
    network_policy: NoNetwork | SomeNetwork | None = Field(
        default=None, discriminator="type", description="Only `disabled` is served."
    )
    skills: list[dict[str, Any]] | None = Field(default=None, description="Not served.")


class NamedFile(BaseModel):
    """A file of the files API."""

    file_id: str


class NetworkPolicy(BaseModel):
    """What code can reach."""

    type: Literal["disabled"] = "disabled"


class ContainerObject(BaseModel):
    """A container."""

    id: str
    object: Literal["container"] = "container"
    name: str
    created_at: int
    last_active_at: int
    status: Literal["active"] = "active"
    expires_after: ContainerExpiry
    memory_limit: MemoryLimit | None = Field(description="The largest of these that it has; null if it has less.")
    memory_bytes: int = Field(description="The memory that it has.")
    network_policy: NetworkPolicy = NetworkPolicy()


class ContainerList(BaseModel):
    """A page of containers."""

    object: Literal["list"] = "list"
    data: list[ContainerObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedContainer(BaseModel):
    """What is left of a container."""

    id: str
    object: Literal["container.deleted"] = "container.deleted"
    deleted: bool = True


class ContainerFile(BaseModel):
    """A file of a container."""

    id: str
    object: Literal["container.file"] = "container.file"
    container_id: str
    path: str = Field(description="Where code sees it.")
    bytes: int
    created_at: int
    source: Literal["user", "assistant"] = Field(description="Who has written it.")


class ContainerFileList(BaseModel):
    """A page of files."""

    object: Literal["list"] = "list"
    data: list[ContainerFile]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedContainerFile(BaseModel):
    """What is left of a file."""

    id: str
    object: Literal["container.file.deleted"] = "container.file.deleted"
    deleted: bool = True


def container_object(container: Container, settings: CodeInterpreterSettings) -> ContainerObject:
    """Return a container as clients see it, with the memory that it has."""
    about = container.about
    memory = settings.limits(memory_bytes(about.memory_limit)).memory
    return ContainerObject(
        id=container.id,
        name=about.name,
        created_at=about.created_at,
        last_active_at=container.last_active_at,
        expires_after=ContainerExpiry(minutes=about.minutes or settings.keep_minutes),
        memory_limit=memory_name(memory),
        memory_bytes=memory,
    )


def file_object(container: Container, file: File) -> ContainerFile:
    """Return a file as clients see it."""
    return ContainerFile(
        id=file.id,
        container_id=container.id,
        path=file.full_path,
        bytes=file.found.size,
        created_at=file.found.changed // 1_000_000_000,
        source="user" if file.found.path in container.about.uploads else "assistant",
    )
