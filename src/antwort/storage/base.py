"""What is kept, what providers can do with it, and how keeping fails."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct, field

from antwort.errors import ServiceUnavailableError
from antwort.storage.call_record import CallRecord
from antwort.types import JSON
from antwort.wire.responses import ResponseObject

Direction = Literal["input", "output", "nested"]
"""What was read, what was said, and the calls that a call has made itself, which neither models nor clients read."""
Mark = Literal["for_clients", "partial"]
"""What else is known of an item: models do not read it, as what a function says to the user; or it was cut off."""
TURNS = "turns"
"""Under this key the extra of a response has the turns of the model."""
FAILED_CALLS = "failed_calls"
"""Under this key the extra of a response counts its calls that have failed; it is not there if none has."""
ENDED_AT = "ended_at"
"""Under this key the extra of a response that is over without being completed has when that was."""
ACTIVE = ("queued", "in_progress")
"""The states of a response that is not over."""


class FencedError(Exception):
    """Somebody else has taken the run over: its epoch is higher than ours. The writer must stop."""


class CrowdedError(Exception):
    """As many runs of the tenant are worked on as may be: this one has to wait."""


class StoreUnavailableError(ServiceUnavailableError):
    """503: the database cannot be used now. A run that cannot be stored is not over: it goes on when it can be."""


class StoreFullError(StoreUnavailableError):
    """503: there is no room for what was to be stored. What was there can be read, and deleted."""


class JournalEntry(Struct):
    """One item of a response, in order. `item` is what clients may see; `visible` tells whether they do by default."""

    direction: Direction
    item: JSON
    visible: bool = True
    call: CallRecord | None = None
    """The call that it is, if the server executes it; or has, if it is an item that a client sends back."""
    mark: Mark | None = None
    sources: JSON | None = None
    """What the output of a call that an input names has noted, as `CallRecord` has it."""

    @property
    def is_plain(self) -> bool:
        """Whether it is an item and nothing else."""
        return self.call is None and self.mark is None and self.sources is None

    @property
    def noted(self) -> JSON | None:
        """What an answer may cite of it, by number."""
        return self.sources if self.call is None else self.call.sources

    @property
    def id(self) -> str:
        """The item's id."""
        return str(self.item["id"])


class TurnRecord(Struct, array_like=True):
    """A turn of the model, as the `extra` of a response keeps it; a list of them is read and written as a whole."""

    position: int
    """How many entries there were: those from there on are what it has said, and what came of that."""
    began: int
    """Milliseconds since 1970."""
    took: int = -1
    """Milliseconds; -1 while it is under way."""
    first: int = -1
    """Milliseconds until its first piece; -1 if there was none, or nobody has looked."""
    read: int = 0
    """Tokens, and how many of them the model server had in its cache."""
    cached: int = 0
    written: int = 0
    finish: str | None = None
    """Why the model has ended, as its server says."""
    error: str | None = None
    """Why there is no answer."""
    tried: list[str] = []
    """The backends that were asked, one for each try."""


class ResponseChain(Struct, frozen=True):
    """A response with all that come before it."""

    status: str
    """How the response is."""
    ids: list[str]
    """Those before it and itself, oldest first."""
    unstored: bool = False
    """Its client wants it not stored: it is there for a while only."""
    prompted: bool = False
    """Whether its instructions may come from a prompt."""


class ResponseRecord(Struct):
    """A stored response without its items."""

    id: str
    tenant: str
    created_at: int
    status: str
    model: str
    body: ResponseObject | JSON
    """The response, whose output is kept as entries: while it is made as it is, what was stored as JSON."""
    request: JSON
    """The request as it came, for whoever continues the run."""
    previous_response_id: str | None = None
    background: bool = False
    epoch: int = 0
    subject: str = ""
    extra: JSON = field(default_factory=dict)
    """What the engine needs to continue: counters, the agent, the deadline."""
    conversation_id: str | None = None
    """The conversation that takes up what is said in the response, when it ends."""
    run_id: str | None = None
    """The run it belongs to, if another response began it."""
    parent_id: str | None = None
    """The response that a sub-agent works for."""
    parent_call_id: str | None = None
    """The call of it that began the sub-agent."""
    child_index: int | None = None
    """Which of the agents of that call it is."""
    parked: bool = False
    """It waits for somebody: nobody works on it until its questions are answered."""
    unstored_at: int | None = None
    """When something was last written of a response that its client wants not stored; others have none.

    It is kept while it is made, and for a while after its end. Nothing lists it, and nothing can come after it.
    """

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer, and nobody works on it."""
        return self.parked and self.status in ACTIVE

    @property
    def json(self) -> JSON:
        """The response as JSON, without its output."""
        found: JSON = self.body if isinstance(self.body, dict) else msgspec.to_builtins(self.body)
        return found


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs a list has; what is not given fits all."""

    status: str | None = None
    background: bool | None = None
    failed: bool | None = None
    """Those that have no whole answer, or calls that have failed; or the others."""
    agent: str | None = None
    function: str | None = None
    """Those that have called it."""
    created_after: int | None = None
    created_before: int | None = None


class ListedResponse(Struct):
    """A response of a list: its record, and the items of its output that clients see."""

    record: ResponseRecord
    output: list[JSON]


class ListedRun(Struct):
    """A run of a list."""

    record: ResponseRecord
    failed_agents: int
    """Agents below it that have no whole answer, or calls that have failed."""


class ConversationRecord(Struct):
    """A stored conversation without its items."""

    id: str
    tenant: str
    created_at: int
    metadata: dict[str, str] = field(default_factory=dict)


class Kept(Struct):
    """Something a provider keeps: a JSON object with an id of its own within its kind and tenant."""

    id: str
    tenant: str
    created_at: int
    value: JSON
    parent: str = ""
    """The id of what it belongs to, for lists."""
    version: int = 1
    """Raised by every update; whoever updates an older one is told so."""
    kind: str = ""


QuestionKind = Literal["question", "approval"]
QuestionStatus = Literal["open", "answered", "expired", "cancelled"]


class Question(Struct, kw_only=True):
    """Something that a run waits for somebody to say."""

    id: str
    tenant: str
    response_id: str
    """The response whose call waits."""
    call_id: str
    root_id: str
    """The response that goes on when it is answered: that of the root agent."""
    kind: QuestionKind
    body: JSON
    """What is asked, as the function has said it; for an approval the name and the arguments of the call."""
    created_at: int
    expires_at: int | None = None
    status: QuestionStatus = "open"
    answer: JSON | None = None
    """What was said, as `{"text": …}` or `{"approve": …, "reason": …}`."""
    answered_at: int | None = None
    answered_by: str | None = None
    """The response that brought the answer, if one did."""


class Questions(Protocol):
    """The questions of all runs, for routes and for whoever tells people of them. What cannot be done is an APIError.

    A question is answered once. The run goes on when all questions of its turn are answered.
    """

    async def get(self, tenant: str, question_id: str) -> Question:
        """Return a question of the tenant; a NotFoundError if there is none."""

    async def page(
        self,
        tenant: str,
        *,
        status: str = "",
        response_id: str = "",
        limit: int = 20,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> "Page":
        """Return questions in the order of asking; those of a response are also those of its sub-agents.

        `after` and `before` are ids; a NotFoundError if one is unknown.
        """

    async def answer(self, tenant: str, question_id: str, answer: JSON) -> Question:
        """Answer an open question: `{"text": …}`, or for an approval `{"approve": …, "reason": …}`.

        A BadRequestError if the answer does not fit, a ConflictError if the question is not open any more, or if it
        can only be answered by a response that continues the one that has asked it.
        """

    async def cancel(self, tenant: str, question_id: str) -> Question:
        """Withdraw an open question; the model is told so. A ConflictError as with `answer`."""

    async def take_untold(self, *, retry: float, limit: int = 20) -> Sequence[Question]:
        """Return open questions of all tenants that nobody was told of yet, and lend them for `retry` seconds.

        Those that are not `told` by then come again, and the longer they are open the less often.
        """

    async def told(self, question: Question) -> None:
        """Take note that people know of a question."""


class StoredEvent(Struct, frozen=True, gc=False):
    """An event of a background response, as it was sent."""

    sequence: int
    type: str
    data: bytes


class Page(Struct, frozen=True):
    """A part of a list."""

    data: Sequence[Any]
    has_more: bool


OWN_RECORDS = ""
"""Whose the records of the server itself are; providers have names."""


class Records(Protocol):
    """What one provider keeps, by kind and id. Each method is one transaction."""

    async def create(
        self,
        tenant: str,
        kind: str,
        id: str,  # noqa: A002 - what it is called everywhere else
        value: JSON,
        *,
        parent: str = "",
        created_at: int | None = None,
    ) -> Kept:
        """Keep something new; a ConflictError if the id is taken. That of something deleted is free again."""

    async def get(self, tenant: str, kind: str, id: str) -> Kept | None:  # noqa: A002
        """Return what is kept, None if nothing is."""

    async def update(self, kept: Kept) -> bool:
        """Store the value if nobody else has meanwhile, and raise the version; False if somebody has, or it is gone."""

    async def delete(self, tenant: str, kind: str, id: str) -> bool:  # noqa: A002
        """Delete something; False if it was not there. Lists may go on from it for a day."""

    async def list(
        self,
        tenant: str,
        kind: str,
        *,
        parent: str | None = None,
        limit: int = 20,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        """Return what is kept in the order in which it came.

        `after` and `before` are ids, of what was deleted within the last day, too; a NotFoundError if one is unknown.
        """

    async def count(self, tenant: str, kind: str, *, parent: str | None = None) -> int:
        """Count what is kept."""

    async def scan(self, kind: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Kept]]:
        """Return what is kept of all tenants, oldest first, each with a number to go on from: for housekeeping."""


FileState = Literal["writing", "uploaded", "deleting"]
"""A file is there once it is `uploaded`. What is in another state waits for whoever writes or deletes it to end."""


class FileRecord(Struct, frozen=True, kw_only=True):
    """What is known of a file; its bytes are kept elsewhere, under its id."""

    id: str
    tenant: str
    filename: str
    """What its owner calls it: one name, without folders and control characters."""
    purpose: str
    bytes: int
    sha256: str
    """Of its content, in hexadecimal digits."""
    created_at: int
    expires_at: int | None = None
    part_of: str = ""
    """What it is a part of, such as an upload that is not complete: it is no file of its own then."""
    status: FileState = "uploaded"


class OldResponse(Struct, frozen=True):
    """A response as housekeeping sees it."""

    number: int
    """It follows the order of storing."""
    tenant: str
    id: str
    created_at: int
    active: bool
    background: bool
