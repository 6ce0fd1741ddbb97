"""What clients may send before anybody knows who they are, how slowly, and over how many connections."""

from pydantic import ByteSize, Field, PositiveInt

from antwort.config.durations import Duration
from antwort.config.settings import Settings

__all__ = ["ConnectionsConfig"]


class ConnectionsConfig(Settings):
    """Connections of clients: sizes of what precedes a body, time-outs, and how many may be open."""

    max_request_line: ByteSize = Field(
        default=ByteSize(8 * 1024), gt=0, description="Longest path with its query, such as 8KiB; else 414."
    )
    max_headers: PositiveInt = Field(default=100, description="Headers of a request; else 431.")
    max_header_bytes: ByteSize = Field(
        default=ByteSize(16 * 1024), gt=0, description="Largest single header, name and value; else 431."
    )
    max_head_bytes: ByteSize = Field(
        default=ByteSize(64 * 1024),
        gt=0,
        description="Largest sum of a request's headers; else 431. As much may stand between the chunks of a body.",
    )
    head_timeout: Duration = Field(
        default=15.0, description="Time in which the headers of a request must have come; else 408."
    )
    body_timeout: Duration = Field(
        default=30.0, description="Time that a body may take, with a second more for each `body_rate` bytes; else 408."
    )
    body_rate: PositiveInt = Field(
        default=1000, description="Bytes per second that a body which takes longer than `body_timeout` must bring."
    )
    idle_timeout: Duration = Field(
        default=60.0, description="Time that a connection is kept open between two requests."
    )
    write_timeout: Duration = Field(
        default=60.0, description="Time after which a client that reads nothing of its answer is cut off."
    )
    max_idle_per_address: PositiveInt = Field(
        default=500,
        description="Connections of one address without a request under way; beyond it the oldest are closed.",
    )
    max_open: PositiveInt | None = Field(
        default=None, description="Connections at the same time; without it, half of the file handles there may be."
    )
