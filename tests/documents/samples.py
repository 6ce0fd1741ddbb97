"""Files to read, written here: the smallest of each kind that has what its readers look for."""

import ctypes
import importlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
_SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
_SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


PlacedText = tuple[float, float, int, str]
"""A text of a page: points from its left and its bottom, the size of its letters, and what it says."""


def pdf(
    *pages: str | Sequence[PlacedText],
    encrypted: bool = False,
    with_table: bool = True,
    title: str = "",
    height: int = 792,
) -> bytes:
    """Return a PDF with a line of text on each page, or several; without its table of contents (xref) if told so."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, page in enumerate(pages):
        texts = [(50, 700, 12, page)] if isinstance(page, str) else page
        drawn = "\n".join(f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET" for x, y, size, text in texts)
        objects += [
            (
                f"<< /Type /Page /Parent 2 0 R /MediaBox [0 {792 - height} 612 792] /Contents {5 + 2 * number} 0 R "
                "/Resources << /Font << /F1 3 0 R >> >> >>"
            ),
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    objects.append(f"<< /Title ({title}) >>")
    written = bytearray(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n{body}\nendobj\n".encode()
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R"
    if encrypted:
        wrong = "5a" * 32
        trailer += f" /ID [<{wrong[:32]}> <{wrong[:32]}>]"
        trailer += f" /Encrypt << /Filter /Standard /V 1 /R 2 /O <{wrong}> /U <{wrong}> /P -4 >>"
    if not with_table:
        return bytes(written + f"trailer\n{trailer} >>\n".encode())
    start = len(written)
    written += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    written += "".join(f"{place:010} 00000 n \n" for place in places).encode()
    return bytes(written + f"trailer\n{trailer} >>\nstartxref\n{start}\n%%EOF\n".encode())


def scanned(data: bytes, *numbers: int, scale: float = 200 / 72, stamp: str = "") -> bytes:
    """Return a PDF of which some pages, from 1, are pictures of what they were, with a text upon it."""
    pypdfium2 = importlib.import_module("pypdfium2")
    before, after = pypdfium2.PdfDocument(data), pypdfium2.PdfDocument.new()
    for number, page in enumerate(before, 1):
        if number not in numbers:
            after.import_pages(before, [number - 1])
            continue
        width, height = page.get_size()
        picture = pypdfium2.PdfImage.new(after)
        picture.set_bitmap(page.render(scale=scale, grayscale=True))
        picture.set_matrix(pypdfium2.PdfMatrix().scale(width, height))
        made = after.new_page(width, height)
        made.insert_obj(picture)
        if stamp:
            made.insert_obj(_stamp(after, stamp))
        made.gen_content()
    written = io.BytesIO()
    after.save(written)
    return written.getvalue()


def _stamp(pdf: Any, text: str) -> Any:
    pypdfium2 = importlib.import_module("pypdfium2")
    raw = pypdfium2.raw
    made = raw.FPDFPageObj_NewTextObj(pdf, b"Helvetica", 12)
    letters = (text + "\0").encode("utf-16-le")
    raw.FPDFText_SetText(made, (ctypes.c_ushort * (len(letters) // 2)).from_buffer_copy(letters))
    return pypdfium2.PdfObject(made, pdf=pdf)


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    """Return a ZIP archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in parts.items():
            written.writestr(name, content)
    return file.getvalue()


def _relations(targets: Sequence[str]) -> str:
    listed = "".join(f'<Relationship Id="r{n}" Type="x" Target="{target}"/>' for n, target in enumerate(targets, 1))
    return f'<Relationships xmlns="{_PACKAGE}">{listed}</Relationships>'


def docx(body: str, *, before: str = "", notes: str = "") -> bytes:
    """Return a DOCX with the elements of a body, and of its footnotes; `before` stands in front of its XML."""
    styles = (
        f'<w:styles xmlns:w="{_WORD}"><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style></w:styles>'
    )
    text = f'{before}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    parts = {"[Content_Types].xml": "<Types/>", "word/document.xml": text, "word/styles.xml": styles}
    if notes:
        parts["word/footnotes.xml"] = f'<w:footnotes xmlns:w="{_WORD}"><w:footnote>{notes}</w:footnote></w:footnotes>'
    return archive(parts)


def paragraph(text: str, style: str = "") -> str:
    """Return a paragraph of a DOCX."""
    chosen = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{chosen}<w:r><w:t>{text}</w:t></w:r></w:p>"


def word_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of a DOCX."""
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def pptx(slides: Sequence[tuple[str, str]], pictures: Sequence[int] = ()) -> bytes:
    """Return a PPTX: the title and the text of each slide, some with a picture. Its parts are numbered backwards."""
    names = [f"slides/slide{len(slides) - number}.xml" for number in range(len(slides))]
    ids = "".join(f'<p:sldId id="{255 + n}" r:id="r{n}"/>' for n in range(1, len(slides) + 1))
    parts = {
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{_SLIDES}" xmlns:r="{_OFFICE}">{ids}</p:presentation>',
        "ppt/_rels/presentation.xml.rels": _relations(names),
    }
    for number, (name, (title, text)) in enumerate(zip(names, slides, strict=True), 1):
        shapes = "".join(
            f"<p:sp><p:nvSpPr><p:nvPr>{kind}</p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>{said}</a:t></a:r></a:p>"
            "</p:txBody></p:sp>"
            for kind, said in (('<p:ph type="title"/>', title), ("<p:ph/>", text))
        )
        shapes += "<p:pic/>" if number in pictures else ""
        parts[f"ppt/{name}"] = f'<p:sld xmlns:p="{_SLIDES}" xmlns:a="{_DRAWING}">{shapes}</p:sld>'
    return archive(parts)


def xlsx(sheets: Mapping[str, Sequence[Sequence[str]]]) -> bytes:
    """Return an XLSX whose texts are shared, and whose numbers are not; the last column is moved by one."""
    strings: list[str] = []
    listed = "".join(f'<sheet name="{name}" r:id="r{n}"/>' for n, name in enumerate(sheets, 1))
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{_SHEETS}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": _relations([f"worksheets/sheet{n}.xml" for n in range(1, len(sheets) + 1)]),
    }
    for number, rows in enumerate(sheets.values(), 1):
        written = ""
        for place, row in enumerate(rows, 1):
            written += "<row>"
            for column, cell in zip("ABCDEFG", row, strict=False):
                if cell.isdigit():
                    written += f'<c r="{column}{place}"><v>{cell}</v></c>'
                else:
                    written += f'<c r="{column}{place}" t="s"><v>{len(strings)}</v></c>'
                    strings.append(cell)
            written += "</row>"
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{_SHEETS}"><sheetData>{written}</sheetData></worksheet>'
        )
    items = "".join(f"<si><t>{text}</t></si>" for text in strings)
    return archive(parts | {"xl/sharedStrings.xml": f'<sst xmlns="{_SHEETS}">{items}</sst>'})


def epub(title: str, chapters: Sequence[str], missing: Sequence[int] = ()) -> bytes:
    """Return an EPUB with a page of HTML for each chapter but those that are missing, from 0."""
    items = "".join(f'<item id="c{n}" href="text/c%20{n}.xhtml"/>' for n in range(len(chapters)))
    order = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<metadata><dc:title>{title}</dc:title></metadata><manifest>{items}</manifest><spine>{order}</spine></package>"
    )
    container = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    parts = {"mimetype": "application/epub+zip", "META-INF/container.xml": container, "OEBPS/book.opf": package}
    pages = {f"OEBPS/text/c {n}.xhtml": f"<html><body>{chapter}</body></html>" for n, chapter in enumerate(chapters)}
    return archive(parts | {name: page for n, (name, page) in enumerate(pages.items()) if n not in missing})


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol">'
    + "".join(f'<!ENTITY lol{n} "{f"&lol{n - 1 if n > 1 else str()};" * 10}">' for n in range(1, 10))
    + "]>"
)
"""An XML whose last entity stands for a billion others."""
