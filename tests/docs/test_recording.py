"""The recording of the first five minutes plays what its page shows, which is real."""

import re
from xml.etree import ElementTree

from scripts import docs, recording

TEXT = "{http://www.w3.org/2000/svg}text"


def test_the_recording_is_that_of_its_page() -> None:
    page = recording.PAGE.read_text(encoding="utf-8")
    assert recording.IMAGE.read_text(encoding="utf-8") == recording.recording(page), "run 'make docs'"


def test_every_line_of_the_page_is_played_in_its_order() -> None:
    page = recording.PAGE.read_text(encoding="utf-8")
    shown = "".join(block.text for block in docs.blocks(page) if block.language == "console")
    played = ElementTree.fromstring(recording.recording(page)).findall(TEXT)
    assert "".join(text.text or "" for text in played) == shown.replace("\n", "")
    starts = [float(found[1]) for text in played if (found := re.search(r"show 0s ([\d.]+)s", text.get("style", "")))]
    assert len(starts) == len(played)
    assert starts == sorted(starts)


def test_the_installation_was_recorded_with_its_progress() -> None:
    page = recording.PAGE.read_text(encoding="utf-8")
    assert re.search(r"setup: package \d+ of \d+\n(setup: .*\n)*setup: installed \d+ packages in \d+ s\n", page)
