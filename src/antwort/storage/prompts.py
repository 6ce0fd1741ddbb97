"""Prompts: texts with places for variables, in versions, that requests name instead of sending them."""

import re
import secrets
import time
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from antwort.errors import BadRequestError, ConflictError, NotFoundError
from antwort.storage.base import Kept, Page, Records

_KIND, _VERSION = "prompt", "prompt_version"
_PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")
_MOST_VERSIONS = 1_000
_FIRST = 1


class PromptVersion(Struct, frozen=True):
    """A version of a prompt, which never changes."""

    version: int
    template: str
    variables: Sequence[str]
    """The names of its variables: those that were declared, and then others that the template has."""
    created_at: int


class _Version(Struct, frozen=True):
    """Where a version is kept."""

    version: int
    id: str


class Prompt(Struct, frozen=True):
    """A prompt with its default version."""

    id: str
    name: str | None
    created_at: int
    default: PromptVersion
    latest: int
    versions: Sequence[_Version] = ()
    configured: bool = False
    """Whether it is one of the configuration, which is there for all tenants and changed there."""
    kept: Kept | None = field(default=None)


def places(template: str) -> list[str]:
    """Return the names of the variables in a template, in their order."""
    return list(dict.fromkeys(_PLACE.findall(template)))


def filled_in(template: str, values: Mapping[str, str], most: int) -> str | None:
    """Return a template with the values of variables; places without one stay. None if it would be too long.

    Values are data: what looks like a place in one of them is none.
    """
    length = len(template)

    def value(found: re.Match[str]) -> str:
        nonlocal length
        text = values.get(found[1], found[0])
        length += len(text) - len(found[0])
        return text if length <= most else ""

    text = _PLACE.sub(value, template)
    return text if length <= most else None


def new_version(number: int, template: str, variables: Sequence[str] | None) -> PromptVersion:
    """Return a version that is made now."""
    names = list(dict.fromkeys([*(variables or ()), *places(template)]))
    return PromptVersion(number, template, names, int(time.time()))


def configured_prompt(name: str, template: str) -> Prompt:
    """Return a prompt of the configuration: its name is its id."""
    version = replace(new_version(_FIRST, template, None), created_at=0)
    return Prompt(name, name, 0, version, _FIRST, configured=True)


class Prompts:
    """The prompts of all tenants: those of the configuration, and those that clients keep."""

    def __init__(self, records: Records, configured: Mapping[str, str]) -> None:
        self._records = records
        self._configured = {name: configured_prompt(name, template) for name, template in configured.items()}

    @property
    def configured(self) -> Sequence[Prompt]:
        """Those of the configuration."""
        return [*self._configured.values()]

    async def create(self, tenant: str, name: str | None, template: str, variables: Sequence[str] | None) -> Prompt:
        """Keep a new prompt."""
        version = new_version(_FIRST, template, variables)
        prompt = Prompt(f"pmpt_{secrets.token_hex(24)}", name, version.created_at, version, _FIRST)
        kept_as = await self._keep(tenant, prompt.id, version)
        prompt = replace(prompt, versions=[kept_as])
        kept = await self._records.create(tenant, _KIND, prompt.id, _head(prompt), created_at=prompt.created_at)
        return replace(prompt, kept=kept)

    async def get(self, tenant: str, prompt_id: str) -> Prompt:
        """Return a prompt; a NotFoundError if there is none."""
        if (configured := self._configured.get(prompt_id)) is not None:
            return configured
        kept = await self._records.get(tenant, _KIND, prompt_id)
        if kept is None:
            raise NotFoundError(f"Prompt with id '{prompt_id[:64]}' not found.")
        return _prompt_of(kept)

    async def version(self, tenant: str, prompt: Prompt, version: int | str | None) -> PromptVersion:
        """Return a version, which texts may name, too, or the default one; a NotFoundError if there is none."""
        number = prompt.default.version if version is None else number_of(version)
        if number == prompt.default.version:
            return prompt.default
        for known in prompt.versions:
            if known.version == number and (kept := await self._records.get(tenant, _VERSION, known.id)) is not None:
                return msgspec.convert(kept.value, PromptVersion)
        raise NotFoundError(
            f"Prompt '{prompt.id}' has no version '{str(version)[:64]}'; its latest one is {prompt.latest}."
        )

    async def versions(self, tenant: str, prompt: Prompt, numbers: Sequence[int]) -> list[PromptVersion]:
        """Return several versions of a prompt."""
        return [await self.version(tenant, prompt, number) for number in numbers]

    async def page(self, tenant: str, *, limit: int, after: str | None, before: str | None, order: str) -> Page:
        """Return prompts that clients keep, as `Records.list` does."""
        page = await self._records.list(tenant, _KIND, limit=limit, after=after, before=before, order=order)
        return Page([_prompt_of(kept) for kept in page.data], page.has_more)

    async def update(
        self,
        tenant: str,
        prompt_id: str,
        expected: int,
        *,
        name: str | None,
        template: str | None,
        variables: Sequence[str] | None,
        default: bool,
    ) -> tuple[Prompt, PromptVersion]:
        """Keep a further version; a ConflictError if the latest is not the one that was expected.

        What is not given stays as it was in the latest.
        """
        prompt = await self._own(tenant, prompt_id)
        if prompt.latest != expected:
            raise _stale(prompt, expected)
        if prompt.latest >= _MOST_VERSIONS:
            raise BadRequestError(f"A prompt has {_MOST_VERSIONS:,} versions at most. Create another one.")
        latest = await self.version(tenant, prompt, prompt.latest)
        changed = latest.template if template is None else template
        version = new_version(prompt.latest + 1, changed, latest.variables if variables is None else variables)
        kept_as = await self._keep(tenant, prompt.id, version)
        prompt = replace(
            prompt,
            name=prompt.name if name is None else name,
            default=version if default else prompt.default,
            latest=version.version,
            versions=[*prompt.versions, kept_as],
        )
        if not await self._store(prompt):
            await self._records.delete(tenant, _VERSION, kept_as.id)
            raise _stale(await self.get(tenant, prompt_id), expected)
        return prompt, version

    async def set_default(self, tenant: str, prompt_id: str, version: int | str) -> Prompt:
        """Let another version be the one that requests get which name none."""
        while True:
            prompt = await self._own(tenant, prompt_id)
            prompt = replace(prompt, default=await self.version(tenant, prompt, version))
            if await self._store(prompt):
                return prompt

    async def delete(self, tenant: str, prompt_id: str) -> None:
        """Delete a prompt with all its versions."""
        await self._own(tenant, prompt_id)
        await self._records.delete(tenant, _KIND, prompt_id)
        while (page := await self._records.list(tenant, _VERSION, parent=prompt_id, limit=100)).data:
            for kept in page.data:
                await self._records.delete(tenant, _VERSION, kept.id)

    async def _own(self, tenant: str, prompt_id: str) -> Prompt:
        """Return a prompt that can be changed."""
        prompt = await self.get(tenant, prompt_id)
        if prompt.configured:
            raise ConflictError(f"Prompt '{prompt_id}' is one of the configuration of this server: change it there.")
        return prompt

    async def _keep(self, tenant: str, prompt_id: str, version: PromptVersion) -> _Version:
        """Keep the text of a version before its prompt says that it is there."""
        name = f"pmptv_{secrets.token_hex(24)}"
        await self._records.create(tenant, _VERSION, name, msgspec.to_builtins(version), parent=prompt_id)
        return _Version(version.version, name)

    async def _store(self, prompt: Prompt) -> bool:
        """Store a changed prompt; False if somebody else has changed it meanwhile."""
        if prompt.kept is None:
            raise RuntimeError("Prompts of the configuration are not stored.")
        return await self._records.update(replace(prompt.kept, value=_head(prompt)))


def number_of(version: int | str) -> int | None:
    """Return the number of a version, which some clients write as a text; None if it cannot be one."""
    if isinstance(version, int):
        return version
    return int(version) if re.fullmatch(r"[0-9]{1,9}", version) else None


def _stale(prompt: Prompt, expected: int) -> ConflictError:
    return ConflictError(
        f"The latest version of prompt '{prompt.id}' is {prompt.latest}, not {expected}: read it, and try again.",
        param="version",
    )


def _head(prompt: Prompt) -> dict[str, object]:
    return {
        "name": prompt.name,
        "default": msgspec.to_builtins(prompt.default),
        "latest": prompt.latest,
        "versions": msgspec.to_builtins(prompt.versions),
    }


def _prompt_of(kept: Kept) -> Prompt:
    value = kept.value
    return Prompt(
        kept.id,
        value["name"],
        kept.created_at,
        msgspec.convert(value["default"], PromptVersion),
        value["latest"],
        msgspec.convert(value["versions"], list[_Version]),
        kept=kept,
    )
