"""Messages: who wrote to whom about what, and the text; attachments are named."""

import email
from email.message import EmailMessage
from email.policy import EmailPolicy
from typing import Any, cast

from typing_extensions import override

from antwort.documents.document import DocumentBuilder
from antwort.documents.formats.html import add_page
from antwort.documents.formats.text import add_paragraphs

_SHOWN = ("From", "To", "Cc", "Date")
_LONGEST_HEADER = 1000
"""Characters of a header that are read: the time that takes grows faster than its length."""


class _Policy(EmailPolicy):
    """Reads messages as is usual now, but no more of a header than somebody writes."""

    @override
    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value if hasattr(value, "name") else value[:_LONGEST_HEADER])


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read a message."""
    message = cast("EmailMessage", email.message_from_bytes(data, policy=_Policy()))
    builder.title = str(message["Subject"] or "")
    builder.heading(builder.title, 1)
    builder.add("\n".join(f"{name}: {message[name]}" for name in _SHOWN if message[name]))
    body = message.get_body(("plain", "html"))
    if body is not None:
        text = _text(cast("EmailMessage", body))
        if body.get_content_type() == "text/html":
            add_page(text, builder, is_whole=True)
        else:
            add_paragraphs(text, builder)
    attached = [name for part in message.iter_attachments() if (name := part.get_filename())]
    if attached:
        builder.add(f"Attachments: {', '.join(attached)}")
        builder.warn(f"What is attached to it was not read; send it on its own: {', '.join(attached)}")


def _text(part: EmailMessage) -> str:
    try:
        return str(part.get_content())
    except (LookupError, UnicodeError):  # an encoding that nobody knows
        payload = part.get_payload(decode=True)
        return payload.decode("utf-8", "replace") if isinstance(payload, bytes) else str(payload)
