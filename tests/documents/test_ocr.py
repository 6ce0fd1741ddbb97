"""The text of pages that are pictures is recognised, by the program tesseract where it is installed, within limits."""

import pytest
from tests.documents import samples
from tests.documents.test_parser import NoSandbox

from antwort.documents import ocr
from antwort.documents.document import Document, UnreadableError
from antwort.documents.ocr import OcrOptions
from antwort.documents.parser import DocumentParser, ParsingLimits
from antwort.sandbox import Sandbox

PAGES = ["Green tea is steeped for two minutes.", "Oolong is steeped for three minutes.", "The end of all tea."]
LOW = 142
"""Points that pages are high: they are recognised in a third of the time."""
MIXED = samples.scanned(samples.pdf(*PAGES, height=LOW), 2)


async def read(parser: DocumentParser, data: bytes) -> Document:
    try:
        found: Document | UnreadableError = await parser.parse(data, "a.pdf")
    except UnreadableError as error:
        found = error
    return await parser.recognise(data, "a.pdf", found)


def lines(document: Document) -> list[str]:
    return [line for line in document.text.splitlines() if line]


@pytest.mark.parametrize("sandbox", [Sandbox, NoSandbox])
async def test_pictures_are_read_among_other_pages_and_alone(sandbox: type[Sandbox]) -> None:
    parser = DocumentParser(sandbox(), ocr=OcrOptions())
    mixed = await read(parser, MIXED)
    assert (lines(mixed), mixed.warnings) == (PAGES, [])
    assert [block.page for block in mixed.blocks] == [1, 2, 3]
    alone = await read(parser, samples.scanned(samples.pdf(*PAGES[:2], height=LOW), 1, 2))
    assert (lines(alone), alone.warnings, alone.has_pictures) == (PAGES[:2], [], False)


async def test_a_picture_with_a_stamp_on_it_is_read_and_one_without_text_says_nothing() -> None:
    parser = DocumentParser(ocr=OcrOptions(languages=["eng"]))
    stamped = await read(parser, samples.scanned(samples.pdf(PAGES[0], PAGES[1], height=LOW), 2, stamp="No 7"))
    assert PAGES[1] in stamped.text
    blank = await read(parser, samples.scanned(samples.pdf(PAGES[0], "", height=LOW), 2))
    assert (lines(blank), blank.warnings) == (PAGES[:1], [])


async def test_without_the_program_or_switched_off_pictures_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    off = await read(DocumentParser(ocr=OcrOptions(is_off=True)), MIXED)
    told = "The pictures that fill page 2 were not read."
    assert (lines(off), off.warnings) == ([PAGES[0], PAGES[2]], [f"{told} Recognise their text first (OCR)."])
    monkeypatch.setattr(ocr, "_PLACES", "/nowhere")
    parser = DocumentParser(ocr=OcrOptions())
    missing = await read(parser, MIXED)
    cure = "Install tesseract-ocr on the server and attach the file again, or recognise their text first."
    assert (lines(missing), missing.warnings) == ([PAGES[0], PAGES[2]], [f"{told} {cure}"])
    with pytest.raises(UnreadableError, match=r"only pictures of pages\. Install tesseract-ocr on the server"):
        await read(parser, samples.scanned(samples.pdf(PAGES[0]), 1))


async def test_a_language_that_is_not_installed_is_named_with_its_package() -> None:
    found = await read(DocumentParser(ocr=OcrOptions(languages=["eng", "chi_sim"])), MIXED)
    assert lines(found) == [PAGES[0], PAGES[2]]
    assert found.warnings[0].endswith(
        "languages of `ocr_languages`; install them: apt-get install tesseract-ocr-chi-sim."
    )


async def test_a_page_that_cannot_be_recognised_leaves_the_others() -> None:
    strip = samples.pdf(*PAGES, height=LOW).replace(b"[0 650 612 792]", b"[0 0 60 8000]", 1)  # too long for tesseract
    found = await read(DocumentParser(ocr=OcrOptions(languages=["eng"])), samples.scanned(strip, 1, 2))
    assert lines(found) == PAGES[1:]
    assert found.warnings[0].startswith("The pictures that fill page 1 were not read. tesseract broke off: ")


async def test_recognising_ends_in_time_and_the_pages_that_are_left_are_named() -> None:
    found = await read(DocumentParser(ocr=OcrOptions(seconds=0.0)), samples.scanned(samples.pdf(*PAGES), 1, 3))
    assert lines(found) == [PAGES[1]]
    told = "The pictures that fill pages 1 and 3 were not read. Recognising takes longer than 0 seconds"
    assert found.warnings[0].startswith(told)


async def test_what_recognising_does_to_its_process_leaves_the_rest_of_the_file() -> None:
    small = DocumentParser(limits=ParsingLimits(memory=80 << 20), ocr=OcrOptions())
    huge = samples.scanned(samples.pdf(*PAGES), 2, scale=10.0)
    found = await small.recognise(huge, "a.pdf", await DocumentParser().parse(huge, "a.pdf"))
    assert lines(found) == [PAGES[0], PAGES[2]]
    assert found.warnings[0].startswith("The pictures that fill page 2 were not read. ")


async def test_a_huge_page_is_drawn_as_finely_as_it_may_be() -> None:
    wide = samples.pdf("A poster").replace(b"[0 0 612 792]", b"[0 0 14400 14400]")
    with pytest.raises(UnreadableError, match=r"^There is no text in it\.$"):
        await read(DocumentParser(ocr=OcrOptions()), samples.scanned(wide, 1, scale=0.05))
