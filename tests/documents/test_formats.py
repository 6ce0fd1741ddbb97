"""Every kind of file is read: text, headings, tables, pages."""

from pathlib import Path

import pytest
from tests.documents import samples

from antwort.documents.child import parsed
from antwort.documents.chunking import chunked
from antwort.documents.document import Document, UnreadableError, named_pages


def said(document: Document) -> list[tuple[str, str]]:
    return [(block.kind, document.text[block.start : block.end].strip()) for block in document.blocks]


def headings_of(document: Document, text: str) -> tuple[str, ...]:
    place = document.text.index(text)
    return next(block.headings for block in document.blocks if block.start <= place < block.end)


def page_of(document: Document, text: str) -> int | None:
    place = document.text.index(text)
    return next(block.page for block in document.blocks if block.start <= place < block.end)


def assert_covered(document: Document) -> None:
    """Blocks follow each other, from the beginning of the text to its end."""
    place = 0
    for block in document.blocks:
        assert block.start == place < block.end
        place = block.end
    assert place == len(document.text)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", "Grüße aus Köln".encode()),
        ("a.txt", "Grüße aus Köln".encode("utf-8-sig")),
        ("a.txt", "Grüße aus Köln".encode("utf-16")),
        ("a.txt", "Grüße aus Köln".encode("cp1252")),
        ("README", "Grüße aus Köln".encode()),
    ],
)
def test_a_text_is_read_in_whatever_encoding(name: str, data: bytes) -> None:
    assert said(parsed(data, name)) == [("paragraph", "Grüße aus Köln")]


def test_a_text_has_paragraphs() -> None:
    document = parsed(b"one\r\nline\r\n\r\n \r\ntwo\x00\x0c\n\n\nthree".replace(b"\x00", b""), "a.txt")
    assert said(document) == [("paragraph", "one\nline"), ("paragraph", "two"), ("paragraph", "three")]
    assert_covered(document)


def test_markdown_has_headings_code_and_tables() -> None:
    text = (
        "---\ntitle: 'The guide'\n---\n# Guide\nIntro\n\n## Install\n\n```sh\n# not a heading\n\nmake\n```\n"
        "Under\n-----\n| a | b |\n|---|---|\n| 1 | 2 |\n\n# End #\nlast"
    )
    document = parsed(text.encode(), "guide.md")
    assert document.title == "The guide"
    assert ("code", "```sh\n# not a heading\n\nmake\n```") in said(document)
    assert ("table", "| a | b |\n|---|---|\n| 1 | 2 |") in said(document)
    assert headings_of(document, "make") == ("Guide", "Install")
    assert headings_of(document, "| 1 | 2 |") == ("Guide", "Under")
    assert headings_of(document, "last") == ("End",)
    assert_covered(document)


def test_a_page_of_html_has_what_a_reader_sees() -> None:
    html = (
        "<!doctype html><html><head><title>A  page</title><style>p{}</style></head><body><nav>menu</nav>"
        "<h1>Top <em>most</em></h1><div>some <b>bold</b> text<p>and more</p></div><script>alert(1)</script>"
        "<h2>Table</h2><table><tr><th>name</th><th>age</th></tr><tr><td>Ann</td><td>3</td></tr></table>"
        "<pre>x = 1\ny = 2</pre><ul><li>first</li><li>second</li></ul></body></html>"
    )
    document = parsed(html.encode(), "page.bin")
    assert document.title == "A page"
    assert said(document) == [
        ("heading", "# Top most"),
        ("paragraph", "some bold text"),
        ("paragraph", "and more"),
        ("heading", "## Table"),
        ("table", "name | age\nAnn | 3"),
        ("code", "x = 1\ny = 2"),
        ("paragraph", "- first\n- second"),
    ]
    assert headings_of(document, "Ann") == ("Top most", "Table")


def test_a_page_names_its_encoding_itself() -> None:
    page = b'<html><head><meta charset="koi8-r"></head><body><p>\xda\xc4\xc5\xd3\xd8</p></body></html>'
    assert said(parsed(page, "page.html")) == [("paragraph", "здесь")]


def test_notes_in_the_chapters_of_a_book_are_no_menus() -> None:
    chapter = "<h1>One</h1><p>Call me.<sup>1</sup></p><aside epub:type='footnote'>1 A whale.</aside>"
    assert "A whale." in parsed(samples.epub("The book", [chapter]), "b.epub").text


def test_a_pdf_has_pages() -> None:
    document = parsed(samples.pdf("The first page", "The second page", title="A report"), "report.pdf")
    assert document.title == "A report"
    assert (page_of(document, "first"), page_of(document, "second")) == (1, 2)
    assert_covered(document)


def test_pages_that_are_pictures_are_named() -> None:
    pages = [f"Page {number} says this." for number in range(1, 9)]
    document = parsed(samples.scanned(samples.pdf(*pages), 2, 4, 5, 6), "mixed.pdf")
    assert [line for line in document.text.split("\n") if line] == [pages[0], pages[2], pages[6], pages[7]]
    [warning] = document.warnings
    assert warning.startswith("The pictures that fill pages 2 and 4-6 were not read. ")
    assert document.with_warnings() == f"{document.text}[{warning}]\n"
    assert parsed(samples.pdf(*pages), "text.pdf").warnings == []
    assert parsed(samples.pdf("One page, and one that is empty.", ""), "text.pdf").warnings == []
    with pytest.raises(UnreadableError, match="only pictures of pages"):
        parsed(samples.scanned(samples.pdf(*pages[:2]), 1, 2), "scan.pdf")


def test_a_page_with_a_stamp_on_its_picture_is_one_that_is_a_picture() -> None:
    data = samples.scanned(samples.pdf("A letter", "Its second page"), 1, 2, stamp="Scan 2025-11")
    assert parsed(data, "scan.pdf").warnings[0].startswith("The pictures that fill pages 1-2 were not read. ")


def test_pages_are_named_in_few_words() -> None:
    assert named_pages([3]) == "page 3"
    assert named_pages([1, 2, 3, 7, 9], "slide") == "slides 1-3, 7 and 9"
    assert named_pages(range(2, 1000, 2)).endswith(", 198, 200 and 399 others")


def test_what_is_not_read_of_other_documents_is_named() -> None:
    book = samples.epub("The book", ["<p>first</p>", "<p>second</p>"], missing=[1])
    assert parsed(book, "b.epub").warnings == ["Chapter 2 could not be read: the file names them, and has them not."]
    talk = samples.pptx([("Start", "hello"), ("", "")], pictures=[2])
    assert parsed(talk, "t.pptx").warnings == ["There are only pictures on slide 2; what they say was not read."]
    unknown = "It does not say what 2 characters of it are; '\ufffd' stands in their place."
    assert parsed("a \ufffd b \ufffd".encode(), "a.txt").warnings == [unknown]


def test_notes_of_a_docx_are_read() -> None:
    document = parsed(samples.docx(samples.paragraph("Text."), notes=samples.paragraph("A note.")), "a.docx")
    assert said(document) == [("paragraph", "Text."), ("paragraph", "A note.")]


def test_a_docx_has_headings_in_the_language_of_its_author_and_tables() -> None:
    body = (
        samples.paragraph("Bericht", "berschrift1")
        + samples.paragraph("Es war einmal.")
        + samples.paragraph("Zahlen", "berschrift2")
        + samples.word_table([["Jahr", "Umsatz"], ["2025", "7"]])
        + '<w:p><w:r><w:br w:type="page"/><w:t>Ende</w:t></w:r></w:p>'
    )
    document = parsed(samples.docx(body), "bericht.docx")
    assert said(document) == [
        ("heading", "Bericht"),
        ("paragraph", "Es war einmal."),
        ("heading", "Zahlen"),
        ("table", "Jahr | Umsatz\n2025 | 7"),
        ("paragraph", "Ende"),
    ]
    assert headings_of(document, "Umsatz") == ("Bericht", "Zahlen")
    assert (page_of(document, "einmal"), page_of(document, "Ende")) == (1, 2)


def test_slides_are_pages_in_their_order() -> None:
    document = parsed(samples.pptx([("Start", "hello"), ("Finish", "goodbye")]), "talk.pptx")
    assert [text for _, text in said(document)] == ["Start", "hello", "Finish", "goodbye"]
    assert page_of(document, "goodbye") == 2
    assert headings_of(document, "goodbye") == ("Finish",)


def test_sheets_are_tables_and_their_columns_stay_apart() -> None:
    document = parsed(samples.xlsx({"Staff": [["name", "age"], ["Ann", "31"]], "Empty": []}), "book.xlsx")
    assert said(document) == [("heading", "Staff"), ("table", "name | age\nAnn | 31"), ("heading", "Empty")]


PRICES = [["Article", "Name", "Price"], *([f"KX-{number}", f"Pump {number}", "12.90"] for number in range(1000, 1400))]
PAGE = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in PRICES)
LISTS: dict[str, bytes] = {
    "prices.csv": "\n".join(";".join(row) for row in PRICES).encode(),
    "prices.tsv": "\n".join("\t".join(row) for row in PRICES).encode(),
    "prices.md": ("\n".join(" | ".join(row) for row in [PRICES[0], ["---"] * 3, *PRICES[1:]])).encode(),
    "piped.md": ("\n".join(f"| {' | '.join(row)} |" for row in [PRICES[0], ["---"] * 3, *PRICES[1:]])).encode(),
    "prices.html": f"<html><body><p>Prices</p><table>{PAGE}</table></body></html>".encode(),
    "prices.docx": samples.docx(samples.paragraph("Prices") + samples.word_table(PRICES)),
    "prices.xlsx": samples.xlsx({"Prices": PRICES}),
}


@pytest.mark.parametrize("name", LISTS)
def test_the_row_that_matches_is_found_below_the_names_of_its_columns(name: str) -> None:
    chunks = chunked(parsed(LISTS[name], name))
    [found] = [chunk for chunk in chunks if "KX-1259" in chunk.text]
    lines = [line.strip("| ") for line in found.text.strip().splitlines()]
    assert lines[0] == "Article | Name | Price"
    assert "KX-1259 | Pump 1259 | 12.90" in lines
    assert len(chunks) > 10


def test_json_is_cut_between_its_values() -> None:
    document = parsed(b'{"a": {"b": [1, 2]}, "c": "d"}', "x.json")
    assert headings_of(document, '"b"') == ("a",)
    assert parsed(b'{"n": 1}\n{"n": 2}\n', "x.jsonl").text.count('"n"') == 2
    assert said(parsed(b'{"broken": ', "x.json")) == [("paragraph", '{"broken":')]


def test_a_message_has_its_subject_its_text_and_the_names_of_what_is_attached() -> None:
    message = (
        "From: ann@example.com\nTo: bob@example.com\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\nMIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="x"\n\n--x\nContent-Type: text/html; charset=utf-8\n\n'
        '<p>Hello <b>Bob</b></p>\n--x\nContent-Type: text/plain\nContent-Disposition: attachment; filename="a.txt"\n\n'
        "secret\n--x--\n"
    )
    document = parsed(message.encode(), "m.eml")
    assert document.title == "Grüße"
    assert "From: ann@example.com" in document.text
    assert "Hello Bob" in document.text
    assert "Attachments: a.txt" in document.text
    assert "secret" not in document.text
    assert document.warnings == ["What is attached to it was not read; send it on its own: a.txt"]


def test_a_book_is_read_in_its_order() -> None:
    document = parsed(samples.epub("The book", ["<h1>One</h1><p>first</p>", "<h1>Two</h1><p>second</p>"]), "b.epub")
    assert document.title == "The book"
    assert [text for _, text in said(document)] == ["# One", "first", "# Two", "second"]
    assert page_of(document, "second") == 2


def test_source_code_is_cut_where_something_begins() -> None:
    document = parsed(b"import os\n\n\ndef one():\n    a = 1\n\n    return a\n\n\nclass Two:\n    b = 2\n", "x.py")
    assert [kind for kind, _ in said(document)] == ["code"] * 3
    assert headings_of(document, "return a") == ("one",)
    assert headings_of(document, "b = 2") == ("Two",)


def test_what_a_file_is_counts_more_than_its_name() -> None:
    assert "first page" in parsed(samples.pdf("The first page"), "notes.txt").text
    assert "hello" in parsed(samples.pptx([("Start", "hello")]), "talk.docx").text
    assert "plain" in parsed(b"plain words", "not.pdf").text


def test_this_file_can_be_read() -> None:
    document = parsed(Path(__file__).read_bytes(), "test_formats.py")
    assert_covered(document)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \n\t ", "empty"),
        (b"\x89PNG\r\n\x1a\n", "an image"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old binary kind"),
        (b"\x00\x01\x02" * 100, "neither a text nor"),
        (samples.archive({"a.txt": "x"}), "unpack it"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        parsed(data, "x.dat")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"<!-- --> " * 400 + b"words", "a.txt"),
        (b"From: " + b'"' * 50_000 + b"\nSubject: s\n\nwords", "a.eml"),
        (b"To: " + b"a@b.example," * 20_000 + b"\nSubject: s\n\nwords", "a.eml"),
    ],
)
def test_what_could_be_read_in_many_ways_is_read_at_once(content: bytes, name: str) -> None:
    assert "words" in parsed(content, name).text
