"""What clients send and see of variables."""

from typing import Literal

from msgspec import Struct

from antwort.provider import ValueKind, Variable, VariableScope


class VariableObject(Struct, kw_only=True):
    """One version of a variable, without its value."""

    id: str
    object: Literal["variable"] = "variable"
    key: str
    scope: VariableScope
    scope_id: str
    version: int
    kind: ValueKind
    bytes: int
    run_id: str | None
    conversation_id: str | None
    created_at: int
    expires_at: int | None

    @classmethod
    def of(cls, variable: Variable) -> "VariableObject":
        """Show a version."""
        return cls(
            id=variable.id,
            key=variable.key,
            scope=variable.scope,
            scope_id=variable.scope_id,
            version=variable.version,
            kind=variable.kind,
            bytes=variable.size,
            run_id=variable.run_id,
            conversation_id=variable.conversation_id,
            created_at=variable.created_at,
            expires_at=variable.expires_at,
        )


class VariableList(Struct, kw_only=True):
    """A page of variables."""

    object: Literal["list"] = "list"
    data: list[VariableObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedVariable(Struct, kw_only=True):
    """A version that is gone."""

    id: str
    object: Literal["variable.deleted"] = "variable.deleted"
    deleted: bool = True


EXAMPLE = VariableObject(
    id="var_06605e4930c1c9c171839f13668e83fe7ffbfa4fd4cef749",
    key="poem",
    scope="tenant",
    scope_id="",
    version=1,
    kind="text",
    bytes=14,
    run_id=None,
    conversation_id=None,
    created_at=1_794_000_000,
    expires_at=None,
)
