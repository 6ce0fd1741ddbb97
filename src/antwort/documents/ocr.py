"""How the text of pictures is recognised, and what that may take: by tesseract, a program of the system."""

import shutil
from collections.abc import Sequence

from msgspec import Struct

_PLACES = "/usr/local/bin:/usr/bin:/bin"
"""Where programs are that are seen in the sandbox, too."""
_CURE = "recognise their text first (OCR)"
_CURE_HERE = "install tesseract-ocr on the server and attach the file again, or recognise their text first"


class OcrOptions(Struct, frozen=True):
    """What an operator says about recognising text."""

    is_off: bool = False
    languages: Sequence[str] = ()
    """As tesseract calls them; if none are named, those that are installed."""
    seconds: float = 600.0
    """For all pictures of one file."""

    def request(self) -> "OcrRequest | None":
        """Return what is asked of whoever reads a file; None if nothing recognises text here."""
        program = None if self.is_off else shutil.which("tesseract", path=_PLACES)
        return None if program is None else OcrRequest(program, self.languages, float(self.seconds))

    @property
    def cure(self) -> str:
        """What can be done about pictures that were not read."""
        return _CURE if self.is_off else _CURE_HERE


class OcrRequest(Struct, frozen=True):
    """Which program recognises text, in which languages, and within how many seconds."""

    program: str
    languages: Sequence[str] = ()
    seconds: float = 600.0


NO_OCR = OcrOptions(is_off=True)
