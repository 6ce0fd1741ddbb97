"""`/v1/responses/{id}/trace`: the story of a run: its agents, what models were asked and said, and each call."""

from typing import Annotated

from pydantic import Field

from antwort.context import Context
from antwort.context.context import TRACES_READ
from antwort.server.api.description import examples
from antwort.server.api.run_stories import RunReader, Trace
from antwort.server.api.shown_texts import LONGEST, Texts
from antwort.web.routes import Route

MaxLength = Annotated[
    int, Field(ge=0, le=1_000_000, description="Characters of each text; the rest of a longer one is left out.")
]


class TraceEndpoints:
    """The endpoint of traces."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def routes(self) -> list[Route]:
        """Return the routes."""
        path = "/v1/responses/{response_id}/trace"
        return [Route("GET", path, self.trace, scope=TRACES_READ, examples=examples.TRACE)]

    async def trace(self, ctx: Context, response_id: str, *, max_length: MaxLength = LONGEST) -> Trace:
        """Return the story of the run that a response belongs to: agents, turns of models, calls, questions.

        The response may be any of the run's: one that brought an answer, or that of a sub-agent. What looks like a
        secret is masked as it is in the logs.
        """
        return await self._reader.trace(ctx.tenant, response_id, Texts(self._reader.redactor, max_length))
