"""Tables as text: CSV and TSV."""

import csv
import sys

from antwort.documents.detection import decoded
from antwort.documents.document import DocumentBuilder, UnreadableError, readable

_ROWS = 50
"""Rows of one block; each has the names of the columns in front."""


def read(data: bytes, filename: str, builder: DocumentBuilder) -> None:
    """Read a table."""
    text = readable(decoded(data))
    csv.field_size_limit(sys.maxsize)
    try:
        rows = [row for row in csv.reader(text.splitlines(), _dialect(text, filename)) if any(row)]
    except csv.Error as error:
        raise UnreadableError(f"It is no table: {error}.") from None
    header, *rest = rows or [[]]
    for start in range(0, max(len(rest), 1), _ROWS):
        builder.table([header, *rest[start : start + _ROWS]])


def _dialect(text: str, filename: str) -> type[csv.Dialect]:
    if filename.lower().endswith(".tsv"):
        return csv.excel_tab
    try:
        return csv.Sniffer().sniff(text[:4096], ",;\t|")
    except csv.Error:
        return csv.excel
