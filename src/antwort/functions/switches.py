"""The operator's switch: providers and functions that are out of service, on all servers of a database.

The store says what is switched off, so that it holds after a restart and for everybody. Workers hear of a change by a
letter, which may be lost, and look at the store as often as they look at each other.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec import Struct

from antwort.concurrency.peers import Letters
from antwort.concurrency.single_flight import SingleFlight
from antwort.context import Context
from antwort.errors import ConflictError, ServiceUnavailableError
from antwort.observability import AuditLog
from antwort.storage.base import Kept, Records, StoreUnavailableError

logger = logging.getLogger(__name__)

_KIND = "switched_off"
_ALL_TENANTS = ""
_PAGE = 500
_LETTER = "switched"

SwitchKind = Literal["provider", "function"]


class SwitchedOff(Struct, frozen=True):
    """That an operator has taken something out of service."""

    kind: SwitchKind
    name: str
    by: str
    """The subject that did it."""
    since: int

    @property
    def cure(self) -> str:
        """What an operator can do about it, after `can`."""
        return f"enable the {self.kind} '{self.name}' again (`antwort {self.kind}s enable {self.name}`)"

    def refusal(self, path: str) -> ServiceUnavailableError:
        """Return the error for a path that is out of service with it; to try again at once is in vain."""
        return ServiceUnavailableError(
            f"{path} is out of service, as the {self.kind} '{self.name}' is disabled. The operator of this server can "
            f"{self.cure}.",
            code="provider_disabled",
            headers={"x-should-retry": "false"},
        )


class Switched(Struct, frozen=True):
    """All that is switched off, by name."""

    providers: Mapping[str, SwitchedOff] = {}
    functions: Mapping[str, SwitchedOff] = {}

    def of(self, kind: SwitchKind) -> Mapping[str, SwitchedOff]:
        """Return what is switched off of a kind."""
        return self.providers if kind == "provider" else self.functions


NONE_SWITCHED = Switched()


class Switches:
    """Switches providers and functions off and on; `apply` is told of all that are off, whenever that has changed."""

    def __init__(
        self, records: Records, apply: Callable[[Switched], None], audit: AuditLog, letters: Iterable[Letters] = ()
    ) -> None:
        self._records = records
        self._apply = apply
        self._audit = audit
        self._letters = tuple(letters)
        self._lock = asyncio.Lock()
        self._known = NONE_SWITCHED
        self._looks = SingleFlight(self._look_again)
        self._heard = False

    @property
    def known(self) -> Switched:
        """All that was switched off at the last look."""
        return self._known

    async def open(self) -> None:
        """Apply what is stored, and hear from now on what others switch."""
        await self.look()
        for letters in self._letters:
            letters.hear(_LETTER, self._hear)

    async def close(self) -> None:
        """Look no more."""
        await self._looks.close()

    async def look(self) -> None:
        """Apply what is stored, if that has changed."""
        async with self._lock:
            await self._look()

    async def switch(self, kind: SwitchKind, name: str, ctx: Context, *, enabled: bool) -> None:
        """Switch something off or on, for everybody; what is so already stays as it is. Calls that run complete."""
        async with self._lock:
            if enabled:
                changed = await self._records.delete(_ALL_TENANTS, _KIND, f"{kind} {name}")
            else:
                changed = await self._note(SwitchedOff(kind, name, ctx.subject, int(time.time())))
            await self._look()
        if changed:
            state = "enabled" if enabled else "disabled"
            self._audit.record(
                f"{kind}.{state}",
                tenant=ctx.tenant,
                subject=ctx.subject,
                request_id=ctx.request_id,
                **{kind: name},
            )
        for letters in self._letters:
            letters.tell(_LETTER, "")

    async def _note(self, off: SwitchedOff) -> bool:
        value = {"kind": off.kind, "name": off.name, "by": off.by}
        try:
            await self._records.create(_ALL_TENANTS, _KIND, f"{off.kind} {off.name}", value, created_at=off.since)
        except ConflictError:  # somebody else has been faster
            return False
        return True

    async def _look(self) -> None:
        found = [_read(kept) for kept in await self._stored()]
        switched = Switched(
            {off.name: off for off in found if off.kind == "provider"},
            {off.name: off for off in found if off.kind == "function"},
        )
        if switched != self._known:
            _tell(self._known, switched)
            self._known = switched
            self._apply(switched)

    async def _stored(self) -> list[Kept]:
        found: list[Kept] = []
        after = 0
        while page := await self._records.scan(_KIND, after=after, limit=_PAGE):
            found += [kept for _, kept in page]
            after = page[-1][0]
            if len(page) < _PAGE:
                break
        return found

    def _hear(self, _: str) -> None:
        """Look at the store soon; who looks already may have looked too early, and looks once more."""
        self._heard = True
        self._looks.begin()

    async def _look_again(self) -> None:
        while self._heard:
            self._heard = False
            try:
                await self.look()
            except StoreUnavailableError as error:  # the next regular look will see it
                logger.warning("what is switched off cannot be looked up now: %s", error.message)


def _read(kept: Kept) -> SwitchedOff:
    value = kept.value
    return SwitchedOff(value["kind"], value["name"], value["by"], kept.created_at)


def _tell(before: Switched, now: Switched) -> None:
    """Log what has changed."""
    for kind in ("provider", "function"):
        old, new = before.of(kind), now.of(kind)
        for name in new.keys() - old.keys():
            logger.warning("the %s '%s' is disabled, by '%s'", kind, name, new[name].by)
        for name in old.keys() - new.keys():
            logger.warning("the %s '%s' is enabled again", kind, name)
