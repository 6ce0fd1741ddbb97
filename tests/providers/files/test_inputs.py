"""Files and images of responses: by id, by URL, and in kinds that no model server reads."""

import base64
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, PermissionDeniedError
from tests.documents.samples import docx, paragraph, pdf
from tests.http.sdk import Served, served
from tests.providers.files.stage import KEYS, TENANTS, keep
from tests.support.site import Reply, Site

from antwort.documents.document import Document
from antwort.documents.parser import DocumentParser
from antwort.engine.planning import input_files
from antwort.engine.planning.input_files import MOST_TEXT
from antwort.text.foreign_text import attached

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20
DOCX = docx(paragraph("The harbour opens at seven."))
PDF = pdf("The harbour opens at seven.")
ENABLED: Any = {"files": {"enabled": True}}


def asking(stage: Served, *parts: Any, key: str = "none", **options: Any) -> Any:
    given: Any = [{"role": "user", "content": [{"type": "input_text", "text": "Well?"}, *parts]}]
    return stage.client(key).responses.create(model="scripted", input=given, **options)


def read(stage: Served) -> list[Any]:
    """Return the parts behind the text of the last message that the model server has read."""
    parts: list[Any] = stage.bodies[-1]["messages"][-1]["content"]
    return parts[1:]


def file(**fields: str) -> dict[str, str]:
    return {"type": "input_file", **fields}


def data_url(raw: bytes) -> str:
    return f"data:application/octet-stream;base64,{base64.b64encode(raw).decode()}"


def test_what_is_named_by_its_id_is_read_and_stays_when_it_is_deleted(tmp_path: Path) -> None:
    with served(tmp_path, ["Seven.", "Still."], over_http=True, section=ENABLED) as stage:
        image = keep(stage, PNG, "a.png", purpose="vision").id
        notes = keep(stage, b"The harbour opens at seven.", "notes.txt").id
        first = asking(
            stage, {"type": "input_image", "file_id": image, "detail": "low"}, file(file_id=notes), store=True
        )
        shown, text = read(stage)
        url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
        assert shown == {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
        assert text["text"] == attached("The harbour opens at seven.", "notes.txt")
        for each in (image, notes):
            stage.client().files.delete(each)
        stage.client().responses.create(model="scripted", input="And now?", previous_response_id=first.id)
        assert stage.bodies[-1]["messages"][0]["content"][1:] == [shown, text]


def test_what_items_of_a_conversation_name_is_read_with_each_response_in_it(tmp_path: Path) -> None:
    with Site({"/b.docx": Reply(DOCX), "*": Reply(status=404)}) as site:
        outbound = {"allow": [site.place]}
        with served(tmp_path, ["Seven.", "Still."], over_http=True, section=ENABLED, outbound=outbound) as stage:
            client = stage.client()
            image, notes = keep(stage, PNG, "a.png", purpose="vision").id, keep(stage, DOCX, "a.docx").id
            picture = {"type": "input_image", "file_id": image, "detail": "low"}
            named: Any = {"role": "user", "content": [picture, file(file_id=notes)]}
            linked: Any = {"role": "user", "content": [file(file_url=f"{site.url}/b.docx")]}
            whole: Any = {"role": "user", "content": [file(file_data=data_url(PDF), filename="c.pdf")]}
            conversation = client.conversations.create(items=[named]).id
            added = client.conversations.items.create(conversation, items=[linked, whole]).data
            for question in ("When does it open?", "And now?"):
                client.responses.create(model="scripted", input=question, conversation=conversation)
                first, second, third = (message["content"] for message in stage.bodies[-1]["messages"][:3])
                url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
                assert first[0] == {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
                for name, text in (("a.docx", first[1]["text"]), ("b.docx", second), ("c.pdf", third)):
                    assert text.splitlines()[1:3] == [f"name: {name}", "The harbour opens at seven."]
            shown = client.conversations.items.list(conversation, order="asc").data
            assert [item.to_dict() for item in shown[1:3]] == [item.to_dict() for item in added]
            client.files.delete(notes)
            with pytest.raises(BadRequestError) as refused:
                client.responses.create(model="scripted", input="Well?", conversation=conversation)
            part = f"conversation[{shown[0].id}].content[1].file_id"
            assert (refused.value.code, refused.value.param) == ("file_not_found", part)


def test_documents_that_the_model_server_does_not_read_become_text(tmp_path: Path) -> None:
    with served(tmp_path, ["Seven."], over_http=True, section=ENABLED) as stage:
        asking(stage, file(file_id=keep(stage, DOCX, "a.docx").id), file(filename="b.pdf", file_data=data_url(PDF)))
        word, page = (part["text"].splitlines() for part in read(stage))
        assert (word[1], word[2]) == ("name: a.docx", "The harbour opens at seven.")
        assert (page[1], page[2]) == ("name: b.pdf", "The harbour opens at seven.")


def test_a_model_server_that_reads_pdf_is_given_it(tmp_path: Path) -> None:
    with served(tmp_path, ["Seven."], over_http=True, backend={"pdf": True}, section=ENABLED) as stage:
        asking(stage, file(file_id=keep(stage, PDF, "a.pdf").id))
        [given] = read(stage)
        encoded = f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}"
        assert given == {"type": "file", "file": {"filename": "a.pdf", "file_data": encoded}}


def test_what_a_url_leads_to_is_fetched_where_that_is_allowed(tmp_path: Path) -> None:
    with Site({"/a%20b.docx": Reply(DOCX, type="application/msword"), "*": Reply(status=404)}) as site:
        with served(tmp_path, ["Seven."], over_http=True, section=ENABLED, outbound={"allow": [site.place]}) as stage:
            asking(stage, file(file_url=f"{site.url}/a%20b.docx"))
            [text] = read(stage)
            assert text["text"].partition("\n")[2].startswith("name: a b.docx\nThe harbour opens at seven.")
            with pytest.raises(BadRequestError, match="404") as refused:
                asking(stage, file(file_url=f"{site.url}/gone"))
            assert refused.value.param == "input[0].content[1].file_url"
        asked = len(site.asked)
        with served(tmp_path, [], over_http=True, section=ENABLED) as stage:
            with pytest.raises(BadRequestError) as refused:
                asking(stage, file(file_url=f"{site.url}/a%20b.docx"))
            assert (refused.value.code, refused.value.param) == ("invalid_url", "input[0].content[1].file_url")
        assert len(site.asked) == asked


def test_what_cannot_be_read_names_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, [], over_http=True, section=ENABLED) as stage:
        text, broken = keep(stage, b"text").id, keep(stage, b"%PDF-1.7\n", "a.pdf").id
        large = keep(stage, b"x" * (50 * 1024**2 + 1)).id
        for part, code, field in (
            ({"type": "input_image", "file_id": text}, "unsupported_image", "file_id"),
            ({"type": "input_image", "file_id": "file-0"}, "file_not_found", "file_id"),
            (file(file_id=broken), "unsupported_file", "file_id"),
            (file(file_id="../x"), "file_not_found", "file_id"),
            (file(file_id=large), "file_too_large", "file_id"),
            (file(file_data=data_url(PNG)), "unsupported_file", "file_data"),
        ):
            with pytest.raises(BadRequestError) as refused:
                asking(stage, part)
            assert (refused.value.code, refused.value.param) == (code, f"input[0].content[1].{field}")
        monkeypatch.setattr(input_files, "MOST_DOCUMENTS", 1)
        with pytest.raises(BadRequestError) as refused:
            asking(stage, file(file_data=data_url(DOCX)), file(file_data=data_url(DOCX)))
        assert (refused.value.code, refused.value.param) == ("too_many_files", "input[0].content[2].file_data")
        monkeypatch.undo()
        monkeypatch.setattr(input_files, "MOST_TEXT", 80)  # room for one text
        with pytest.raises(BadRequestError, match="texts of the files") as refused:
            asking(stage, file(file_data=data_url(DOCX)), file(file_data=data_url(DOCX)))
        assert (refused.value.code, refused.value.param) == ("file_too_large", "input[0].content[2].file_data")


def test_a_text_that_is_longer_than_any_model_reads_is_refused_however_it_comes(tmp_path: Path) -> None:
    """To write, store and send one of 40 MB took so many long steps that others waited for a second and more."""
    line = b"value," * (MOST_TEXT // 6 + 1)
    with served(tmp_path, ["Fine."], over_http=True, section=ENABLED) as stage:
        for part, field in (
            (file(file_id=keep(stage, line, "one-line.csv").id), "file_id"),
            (file(file_data=data_url(line), filename="one-line.csv"), "file_data"),
        ):
            with pytest.raises(
                BadRequestError, match="texts of the files of a request have 8,388,608 bytes"
            ) as refused:
                asking(stage, part)
            assert (refused.value.code, refused.value.param) == ("file_too_large", f"input[0].content[1].{field}")
        asking(stage, file(file_id=keep(stage, line[:MOST_TEXT], "one-line.csv").id))


def test_files_of_others_are_not_there_and_reading_needs_its_scope(tmp_path: Path) -> None:
    keys = [*TENANTS["api_keys"], {"id": "c", "key": "key-of-c-0123456789", "tenant": "a", "scopes": ["responses:*"]}]
    with served(tmp_path, [], over_http=True, section=ENABLED, auth={"api_keys": keys}) as stage:
        made = stage.client(KEYS["a"]).files.create(file=b"text", purpose="user_data").id
        with pytest.raises(BadRequestError) as missing:
            asking(stage, file(file_id=made), key=KEYS["b"])
        assert missing.value.code == "file_not_found"
        with pytest.raises(PermissionDeniedError, match="files:read"):
            asking(stage, file(file_id=made), key="key-of-c-0123456789")


def test_a_document_that_is_sent_again_and_again_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_names: list[str] = []
    parse = DocumentParser.parse

    async def counted(self: DocumentParser, data: bytes, filename: str) -> Document:
        read_names.append(filename)
        return await parse(self, data, filename)

    monkeypatch.setattr(DocumentParser, "parse", counted)
    with served(tmp_path, ["Seven."] * 6, over_http=True, section=ENABLED) as stage:
        stored = keep(stage, DOCX, "a.docx").id
        for part in (file(file_id=stored), file(file_id=stored), file(filename="a.docx", file_data=data_url(DOCX))):
            asking(stage, part)
            [text] = read(stage)
            assert text["text"].partition("\n")[2].startswith("name: a.docx\nThe harbour opens at seven.")
        assert read_names == ["a.docx"]
        stage.client().files.delete(stored)
        with pytest.raises(BadRequestError) as refused:
            asking(stage, file(file_id=stored))
        assert refused.value.code == "file_not_found"

        monkeypatch.setattr(input_files, "MOST_KEPT", 100)  # room for one of them
        for name in ("b.docx", "c.docx", "b.docx"):
            asking(stage, file(filename=name, file_data=data_url(DOCX)))
        assert read_names == ["a.docx", "b.docx", "c.docx", "b.docx"]


def test_a_summary_is_made_from_what_is_in_files(tmp_path: Path) -> None:
    with served(tmp_path, ["It opens at seven."], over_http=True, section=ENABLED) as stage:
        notes = keep(stage, b"The harbour opens at seven.", "notes.txt").id
        parts = [file(file_id=notes), file(filename="plan.pdf", file_data=data_url(PDF))]
        said: Any = [{"role": "user", "content": parts}, {"role": "assistant", "content": "I see."}]
        stage.client().responses.compact(model="scripted", input=said)
        record = stage.bodies[-1]["messages"][-1]["content"]
    assert record.startswith(f"USER: {attached('The harbour opens at seven.', 'notes.txt')}\n")
