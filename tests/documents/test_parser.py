"""Files are read in a process apart: whatever a file does to it, the next one is read."""

import logging
from pathlib import Path

import pytest
from tests.documents import samples
from typing_extensions import override

import antwort
from antwort.documents.document import UnreadableError
from antwort.documents.parser import DocumentParser, ParsingLimits
from antwort.errors import ConfigError
from antwort.sandbox import Sandbox, SandboxRules
from antwort.sandbox.control_groups import ControlGroups

BOMB = samples.docx(samples.paragraph("a" * 50_000_000))

BAD = {
    "truncated.pdf": (samples.pdf("The first page", "The second page")[:150], "damaged, or cut off"),
    "encrypted.pdf": (samples.pdf("secret", encrypted=True), "needs a password"),
    "bomb.docx": (BOMB, "too large when it is unpacked"),
    "laughs.docx": (samples.docx("<w:p/>", before=samples.LAUGHS), "declares entities"),
    "truncated.docx": (samples.docx(samples.paragraph("text"))[:-40], "damaged, or cut off"),
    "empty.txt": (b"", "empty"),
    "picture.txt": (b"\x89PNG\r\n\x1a\n" + bytes(100), "an image"),
    "nested.json": (b"[" * 100_000, "nested too deeply"),
    "one-line.txt": (b"all work and no play " * 2_500_000, "too long"),
}
READ = {
    "no-xref.pdf": (samples.pdf("found all the same", with_table=False), "found all the same"),
    "laughs.xml": (f"{samples.LAUGHS}<lolz>&lol9;</lolz>".encode(), "&lol9;"),
    "pdf.txt": (samples.pdf("wrong ending"), "wrong ending"),
    "polyglot.pdf": (samples.pdf("of two kinds") + samples.docx(samples.paragraph("the other")), "of two kinds"),
    "polyglot.html": (b"%PDF-not <html><body>only a page</body></html>", "only a page"),
}


@pytest.fixture(scope="module")
def parser() -> DocumentParser:
    return DocumentParser()


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_file_ends_with_a_reason(name: str, parser: DocumentParser) -> None:
    data, reason = BAD[name]
    with pytest.raises(UnreadableError, match=reason):
        await parser.parse(data, name)


@pytest.mark.parametrize("name", READ)
async def test_an_odd_file_is_read(name: str, parser: DocumentParser) -> None:
    data, text = READ[name]
    assert text in (await parser.parse(data, name)).text


async def test_reading_ends_in_time_and_the_next_file_is_read() -> None:
    hurried = DocumentParser(limits=ParsingLimits(seconds=0.01))
    with pytest.raises(UnreadableError, match="took too long"):
        await hurried.parse(b"text", "a.txt")
    assert (await DocumentParser().parse(b"text", "a.txt")).text == "text\n\n"


@pytest.mark.parametrize("groups", [True, False])
async def test_reading_may_not_use_all_memory(groups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not groups:
        monkeypatch.setattr(ControlGroups, "find", lambda: ControlGroups({}))
    parser = DocumentParser(limits=ParsingLimits(memory=64 << 20))
    with pytest.raises(UnreadableError, match=r"more memory|broke off"):
        await parser.parse(b"word " * 6_000_000, "a.txt")


class NoSandbox(Sandbox):
    @override
    async def prepare(self) -> None:
        raise ConfigError("there is none here")


async def test_without_a_sandbox_files_are_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    parser = DocumentParser(NoSandbox())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert (await parser.parse(b"text", "a.txt")).text == "text\n\n"
    assert [record.getMessage() for record in caplog.records] == [
        "documents are read without a sandbox, in a process with limits: there is none here"
    ]


async def test_files_are_read_in_the_sandbox_also_by_an_interpreter_that_only_root_can_reach(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parser = DocumentParser(Sandbox(SandboxRules(several_tenants=True, allows_unbounded=True)))
    with caplog.at_level(logging.WARNING):
        await parser.prepare()
    assert [record for record in caplog.records if "without a sandbox" in record.getMessage()] == []


async def test_without_a_sandbox_nothing_is_read_for_several_tenants(caplog: pytest.LogCaptureFixture) -> None:
    parser = DocumentParser(NoSandbox(SandboxRules(several_tenants=True)))
    with pytest.raises(ConfigError, match=r"read in a sandbox.*: there is none here .*sandbox.unbounded: allow"):
        await parser.prepare()
    with caplog.at_level(logging.ERROR), pytest.raises(UnreadableError, match="reads no documents now"):
        await parser.parse(b"text", "a.txt")
    assert "there is none here" in caplog.text
    allowed = DocumentParser(NoSandbox(SandboxRules(several_tenants=True, allows_unbounded=True)))
    assert (await allowed.parse(b"text", "a.txt")).text == "text\n\n"


async def test_what_lies_in_the_interpreter_that_reads_is_not_shown_to_it() -> None:
    own = Path(antwort.__file__ or "").parent / "data"
    with pytest.raises(ConfigError, match=r"data_dir is .*/data, and code in the sandbox can read"):
        await DocumentParser(Sandbox(SandboxRules(private={"data_dir": own}))).prepare()
