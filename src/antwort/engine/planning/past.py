"""What came before a response: read once, kept as long as there is room, and extended by what every response adds.

A response that is over does not change, but it can be deleted, by another process too. So the store is asked each time
which responses come before one, and what is kept of them is only used if they are the same. A conversation is asked for
what came after what is kept of it; it says, too, if something of that was deleted.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from antwort.backends.passages import Passage, Window, opens, stand_alone
from antwort.concurrency.large_work import MANY, LargeWork
from antwort.engine.planning.input_files import item_links, names_files
from antwort.engine.planning.resent_calls import is_resent
from antwort.engine.tools.toolsets import changing_entries
from antwort.engine.window import Seals, check_calls, input_items, is_sealed, model_items, pruned, read_window
from antwort.errors import BadRequestError
from antwort.storage.base import ACTIVE, JournalEntry
from antwort.storage.sql.conversations import EMPTY, ConversationState
from antwort.storage.sql.store import Store
from antwort.types import JSON

MOST_BYTES = 8 * 1024**2
"""JSON of past responses that is kept, of all tenants together. In memory it takes several times as much."""


class NotOverError(BadRequestError):
    """400: the response that is to be continued is not over. One that waits for somebody goes on with the answer."""


class History(list[JournalEntry]):
    """The entries of responses that are over, in order, and what was made of them. Nobody changes any of it.

    `passage` has, as the model reads it, all but the entries in `latest`: what follows may belong to these still.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        """The responses, those without entries too."""
        self.links: list[str] = []
        """The URLs in them."""
        self.changing: list[JSON] = []
        """The items among them that bring tools, or change settings."""
        self.noting: list[JournalEntry] = []
        """Those with calls that have noted sources."""
        self.passage = Passage(())
        self.latest: list[JournalEntry] = []
        self.size = 0
        """Bytes of JSON."""
        self.state = EMPTY
        """How far the items of a conversation are in it, if they are those of one."""
        self.is_read = True
        """Whether none of them is an item of a call of ours that a client has given to a conversation."""
        self.names_files = False
        """Whether one of them has a file in it that a client has given to a conversation, and that is to be read."""
        self.prompted = False
        """Whether the instructions of the last response may come from a prompt."""
        self._open = 0
        """So many entries the latest had when they were last found to be open: it is tried again with twice as many."""

    def extended(self, ids: Sequence[str], journals: Mapping[str, Sequence[JournalEntry]]) -> "History":
        """Return a history with more responses at its end, and the journals of those that have one."""
        return self._with([*self.ids, *ids], [journals.get(response_id, ()) for response_id in ids])

    def with_items(self, conversation_id: str, entries: Sequence[JournalEntry], state: ConversationState) -> "History":
        """Return a history with more items of a conversation at its end."""
        made = self._with([conversation_id], _by_openings(entries))
        made.is_read = self.is_read and not any(map(is_resent, entries))
        made.names_files = self.names_files or any(map(names_files, entries))
        made.state = state
        return made

    def _with(self, ids: list[str], groups: Iterable[Sequence[JournalEntry]]) -> "History":
        made = History()
        made += self
        made.ids, made.links, made.noting = ids, [*self.links], [*self.noting]
        made.changing = [*self.changing]
        made.latest, made.size, made._open = [*self.latest], self.size, self._open
        closed: list[JSON] = []
        for group in groups:
            made._take(group, closed)
        made.passage = self.passage.extended(closed) if closed else self.passage
        return made

    def _take(self, entries: Sequence[JournalEntry], closed: list[JSON]) -> None:
        """Take some entries. What was the latest is closed, if nothing can belong to it any more."""
        if not entries:
            return
        if len(self.latest) > self._open and entries[0].is_plain and opens(entries[0].item):
            items = model_items(self.latest)
            if stand_alone(items) and not any(map(is_sealed, items)):
                closed += items
                self.latest, self._open = [], 0
            else:
                self._open = 2 * len(self.latest)
        self += entries
        self.latest += entries
        self.links += (url for entry in entries for _, url in item_links(entry.item, ""))
        self.changing += changing_entries(entries)
        self.noting += (entry for entry in entries if entry.noted is not None)
        self.size += len(msgspec.json.encode(entries))


def _by_openings(entries: Sequence[JournalEntry]) -> Iterator[Sequence[JournalEntry]]:
    """Yield entries in groups that begin with a message which is not the model's."""
    start = 0
    for position, entry in enumerate(entries):
        if position > start and entry.is_plain and opens(entry.item):
            yield entries[start:position]
            start = position
    yield entries[start:]


def past_window(
    history: Sequence[JournalEntry],
    entries: Iterable[JournalEntry],
    seals: Seals,
    pending: Collection[str] = (),
    *,
    prune: bool = False,
) -> list[JSON]:
    """Return what `read_window` does, as a window with a passage if it can be."""
    if isinstance(history, History) and history.passage.items:
        latest = model_items(history.latest)
        rest = [*latest, *input_items(entries)]
        is_whole = not prune or len(pruned(latest)) == len(latest)
        if is_whole and not any(map(is_sealed, rest)) and _fit(rest, pending):
            return Window(history.passage, rest)
    return read_window(history, entries, seals, prune, pending)


def _fit(items: Sequence[JSON], pending: Collection[str]) -> bool:
    """Tell whether calls and outputs fit each other, whatever is before them."""
    try:
        check_calls(items, pending)
    except BadRequestError:
        return False
    return True


class Past:
    """Reads what came before a response, and keeps what was asked for last."""

    def __init__(self, store: Store, large_work: LargeWork, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._large_work = large_work
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, str], History] = OrderedDict()
        """By tenant and the id of the last response, or of the conversation."""
        self._size = 0

    async def history(self, tenant: str, response_id: str, *, of_run: bool = False) -> History:
        """Return all up to a response of the tenant; an unknown id is a BadRequestError with OpenAI's code.

        So is that of a response that is not to be stored, except for whoever is `of_run`, the same run. One that is not
        over is a NotOverError.
        """
        chain = await self._store.chain(tenant, response_id)
        if chain is not None and chain.status in ACTIVE:
            raise NotOverError(
                f"Previous response with id '{response_id}' is not over yet; it is '{chain.status}'. While it waits "
                "for answers, it takes these, with nothing else, in a POST to /v1/responses.",
                param="previous_response_id",
                code="previous_response_not_over",
            )
        if chain is None or (chain.unstored and not of_run):
            reason = "" if chain is None else " It was created with 'store' false."
            raise BadRequestError(
                f"Previous response with id '{response_id}' not found.{reason}",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        history = self._find(tenant, chain.ids)
        missing = chain.ids[len(history.ids) :]
        if missing:
            journals = await self._store.journals(tenant, missing)
            history = await self._large_work.run_if(len(missing) * 2 >= MANY, history.extended, missing, journals)
        history.prompted = chain.prompted
        self._keep(tenant, history)
        return history

    async def conversation(self, tenant: str, conversation_id: str) -> History | None:
        """Return the items of a conversation; None if it is not there. It counts as a use of the conversation."""
        kept = self._kept.get((tenant, conversation_id)) or History()
        later = await self._store.conversations.since(tenant, conversation_id, kept.state)
        if later is None:
            self._drop(tenant, [conversation_id])
            return None
        history = kept if later.after == kept.state else History()
        if later.entries or not history.ids:
            history = await self._large_work.run_if(
                len(later.entries) >= MANY, history.with_items, conversation_id, later.entries, later.reached
            )
        self._keep(tenant, history)
        return history

    def _find(self, tenant: str, ids: Sequence[str]) -> History:
        """Return what is kept of responses, if they are still the same: of all of them, or of all but the last."""
        for count in (len(ids), len(ids) - 1):
            kept = self._kept.get((tenant, ids[count - 1])) if count else None
            if kept is not None and kept.ids == ids[:count]:
                return kept
        return History()

    def _keep(self, tenant: str, history: History) -> None:
        """Keep a history in the place of the one that it extends, and drop what there is no room for."""
        self._drop(tenant, history.ids[-2:])
        self._kept[tenant, history.ids[-1]] = history
        self._size += history.size
        while self._size > self._most_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._size -= dropped.size

    def _drop(self, tenant: str, names: Iterable[str]) -> None:
        for name in names:
            dropped = self._kept.pop((tenant, name), None)
            self._size -= 0 if dropped is None else dropped.size
