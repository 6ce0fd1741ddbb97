"""What a provider keeps, as long as its tenant has room."""

from collections.abc import Awaitable, Callable

from typing_extensions import override

from antwort.storage.base import Records
from antwort.storage.passing import PassingRecords


class LimitedRecords(PassingRecords):
    """Records whose tenants are asked for room before something new is kept; all else is passed on."""

    def __init__(self, records: Records, check_room: Callable[[str], Awaitable[None]]) -> None:
        self._records = records
        self._check_room = check_room

    @override
    async def _behind(self, *, new_of: str | None = None) -> Records:
        if new_of is not None:
            await self._check_room(new_of)
        return self._records
