"""Messages: who wrote to whom about what, and the text; attachments are named."""

import email
import email.policy
from email.message import EmailMessage
from typing import cast

from antwort.ingestion.document import DocumentBuilder
from antwort.ingestion.formats.html import add_page
from antwort.ingestion.formats.text import add_paragraphs

_SHOWN = ("From", "To", "Cc", "Date")


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:  # noqa: ARG001 - all readers have it
    """Read a message."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    builder.title = str(message["Subject"] or "")
    builder.heading(builder.title, 1)
    builder.add("\n".join(f"{name}: {message[name]}" for name in _SHOWN if message[name]))
    body = message.get_body(("plain", "html"))
    if body is not None:
        text = _text(cast("EmailMessage", body))
        (add_page if body.get_content_type() == "text/html" else add_paragraphs)(text, builder)
    attached = [name for part in message.iter_attachments() if (name := part.get_filename())]
    if attached:
        builder.add(f"Attachments: {', '.join(attached)}")


def _text(part: EmailMessage) -> str:
    try:
        return str(part.get_content())
    except (LookupError, UnicodeError):  # an encoding that nobody knows
        payload = part.get_payload(decode=True)
        return payload.decode("utf-8", "replace") if isinstance(payload, bytes) else str(payload)
