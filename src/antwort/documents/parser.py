"""Reading documents in a process apart: with limits, and in the sandbox where this machine has one."""

import asyncio
import logging
import sys
from pathlib import Path

import msgspec

import antwort
from antwort.documents.child import ParserAnswer, ParserRequest
from antwort.documents.detection import own_text
from antwort.documents.document import Document, UnreadableError
from antwort.documents.ocr import NO_OCR, OcrOptions
from antwort.errors import ConfigError, FunctionUnavailableError
from antwort.sandbox import BareHost, Ending, Finished, Sandbox, SandboxLimits
from antwort.sandbox.limits import NICENESS
from antwort.sandbox.places import python_places, system_places

logger = logging.getLogger(__name__)

_COMMAND = ("-I", "-B", "-m", "antwort.documents.child")
_REASONS: dict[Ending, str] = {
    "time": "Reading it took too long.",
    "memory": "It needs more memory than reading one file may use.",
    "output": "It is too long: it has too much text.",
}
_CRASHED = "It is damaged, or not what its name says: the program that reads such files broke off."


class ParsingLimits(msgspec.Struct, frozen=True):
    """What reading one file may use."""

    seconds: float = 120.0
    memory: int = 1 << 30
    output_bytes: int = 128 << 20


class DocumentParser:
    """Reads files, each in a process of its own, which ends with it. Whatever a file does, it is done to that process.

    Where the sandbox cannot be had, the process has its limits all the same, and a warning says so once; nothing is
    read there for several tenants, unless the operator allows it.
    """

    def __init__(
        self, sandbox: Sandbox | None = None, limits: ParsingLimits | None = None, ocr: OcrOptions = NO_OCR
    ) -> None:
        self._sandbox = sandbox or Sandbox()
        self._ocr = ocr
        limits = limits or ParsingLimits()
        self._limits = SandboxLimits(
            seconds=limits.seconds,
            memory=limits.memory,
            processes=32,
            output_bytes=limits.output_bytes,
            niceness=NICENESS,  # it is one of few, in its turn, and would stand still beside others that are busy
        )
        self._host: Sandbox | None = None
        self._choosing = asyncio.Lock()

    @staticmethod
    def own_text(data: bytes, filename: str) -> str | None:
        """Return the text that a file is, as it was written; None for one out of which a text has to be read."""
        return own_text(data, filename)

    async def prepare(self) -> None:
        """Find out where files are read, once; ConfigError if they would be read where they must not be.

        Whoever does not call this learns it with the first file.
        """
        await self._chosen()

    async def parse(self, data: bytes, filename: str) -> Document:
        """Return what a file says; UnreadableError if it cannot be read, or not within the limits.

        The text of pictures is not recognised; where there are any, `has_pictures` says so, of the error, too.
        """
        return await self._parsed(data, ParserRequest(filename, self._ocr.cure), self._limits)

    async def recognise(self, data: bytes, filename: str, found: Document | UnreadableError) -> Document:
        """Return what a file says of which `parse` has `found` that there are pictures in it, with their text.

        If that cannot be recognised here, or not within the limits, it is what was found, with a warning.
        """
        if found.has_pictures and (ocr := await asyncio.to_thread(self._ocr.request)) is not None:
            limits = msgspec.structs.replace(self._limits, seconds=self._limits.seconds + ocr.seconds)
            try:
                return await self._parsed(data, ParserRequest(filename, self._ocr.cure, ocr), limits)
            except UnreadableError as error:
                if isinstance(found, UnreadableError):
                    raise
                why = f"The text of its pictures could not be recognised. {error}"
                return msgspec.structs.replace(found, warnings=[*found.warnings, why])
        if isinstance(found, UnreadableError):
            raise found
        return found

    async def _parsed(self, data: bytes, request: ParserRequest, limits: SandboxLimits) -> Document:
        try:
            done = await self._run(msgspec.json.encode(request) + b"\n" + data, limits)
        except ConfigError as error:
            logger.error("a file cannot be read: %s", error)  # noqa: TRY400 - the operator's to mend, no bug of ours
            raise UnreadableError("This server reads no documents now. Its log says why.") from None
        if done.ending != "exit":
            raise UnreadableError(_REASONS.get(done.ending, _CRASHED))
        try:
            answer = msgspec.msgpack.decode(done.stdout, type=ParserAnswer)
        except msgspec.DecodeError:
            logger.warning("reading a file failed: %s", done.stderr[-500:].decode(errors="replace"))
            raise UnreadableError(_CRASHED) from None
        if answer.document is None:
            raise UnreadableError(answer.reason, answer.problem, has_pictures=answer.has_pictures)
        return answer.document

    async def _run(self, stdin: bytes, limits: SandboxLimits) -> Finished:
        host = await self._chosen()
        readonly = [] if isinstance(host, BareHost) else _places()
        return await host.run([sys.executable, *_COMMAND], stdin=stdin, limits=limits, readonly=readonly)

    async def _chosen(self) -> Sandbox:
        """Return the sandbox, or the bare host where there is none in which this interpreter runs."""
        async with self._choosing:
            if self._host is None:
                await asyncio.to_thread(self._sandbox.rules.check_places, _places())
                why = await self._why_not()
                if why and self._sandbox.rules.needs_bounds:
                    raise ConfigError(
                        f"documents of several tenants are read in a sandbox, and there is none for them here: {why} "
                        "Mend that, or accept it with `sandbox.unbounded: allow`",
                        where="sandbox.unbounded",
                    )
                if why:
                    logger.warning("documents are read without a sandbox, in a process with limits: %s", why)
                self._host = BareHost() if why else self._sandbox
            return self._host

    async def _why_not(self) -> str:
        probe = [sys.executable, "-I", "-c", "import antwort.documents.child"]
        try:
            await self._sandbox.prepare()
            done = await self._sandbox.run(probe, readonly=_places())
        except (ConfigError, FunctionUnavailableError) as error:
            return str(error)
        if done.exit_code == 0:
            return ""
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return f"{sys.executable} cannot be used in it ({(said or ['it said nothing'])[-1][:300]})."


def _places() -> list[Path]:
    """Return what of this interpreter and of this package lies outside of the system."""
    executable = Path(sys.executable)
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), executable.resolve().parent.parent}
    found = python_places(prefixes, [executable, executable.resolve()])
    package = Path(antwort.__file__ or "").resolve().parent
    return found if any(map(package.is_relative_to, [*found, *system_places()])) else [*found, package]
