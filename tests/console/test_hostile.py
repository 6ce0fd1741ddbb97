"""Whatever strangers say is text: in answers, thoughts, calls, results, errors, names."""

from collections.abc import Callable
from pathlib import Path

from tests.console.desk import Desk, console
from tests.console.hostile import HOSTILE
from tests.console.test_chat import over, say

from antwort.testing import call, turn

Open = Callable[..., Desk]
HIDDEN = (
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\u061c\u2028\u2029\ufeff\u0000\u0007\u001b"
)

LOOK = """hidden => {
  const main = document.querySelector("main");
  const bad = "script, iframe, object, embed, base, meta, link, style, form[action], math, video, noscript";
  const elements = [...main.querySelectorAll("*")];
  return {
    bad: [...main.querySelectorAll(bad)].map((one) => one.outerHTML),
    handlers: elements.filter((one) => [...one.attributes].some(({ name }) => /^on|^style$|^srcdoc$/.test(name))
      && !(one.localName === "textarea")).map((one) => one.outerHTML),
    links: [...main.querySelectorAll("a")].map((one) => one.getAttribute("href"))
      .filter((href) => !/^(https?:[/][/]|#[/])/.test(href)),
    pictures: [...main.querySelectorAll("img")].map((one) => one.src).filter((src) => !/^data:image/.test(src)),
    unseen: [...hidden].filter((one) => main.textContent.includes(one)).map((one) => one.codePointAt(0)),
    pwned: "pwned" in window,
    wide: document.documentElement.scrollWidth > innerWidth,
    text: main.textContent,
  };
}"""


async def repeat(texts: list[str]) -> str:
    """Say it again."""
    return "\n\n".join(texts)


async def fail(texts: list[str]) -> str:
    """Fail with it."""
    raise ValueError(texts[0])


def check(tab: Desk) -> str:
    """Look for anything on the page that is more than text; return what it says."""
    found = tab.page.evaluate(LOOK, HIDDEN)
    text = str(found.pop("text"))
    assert found == {
        "bad": [],
        "handlers": [],
        "links": [],
        "pictures": [],
        "unseen": [],
        "pwned": False,
        "wide": False,
    }
    return text


def test_what_models_and_functions_say_is_text(tmp_path: Path, desk: Open) -> None:
    assert len(HOSTILE) >= 40
    everything = "\n\n".join(HOSTILE)
    calls = [
        call("repeat", texts=list(HOSTILE)),
        call("fail", texts=list(HOSTILE)),
        call("calculate", expression=HOSTILE[0]),
    ]
    steps = [
        turn(calls=calls, reasoning=everything),
        turn([everything[at : at + 500] for at in range(0, len(everything), 500)]),
    ]
    with console(tmp_path, *steps, offered=[repeat, fail]) as (server, _):
        tab = desk(server.url)
        say(tab, everything)
        over(tab)
        for line in tab.page.locator("details > summary").all():
            line.click()
        more = tab.page.get_by_role("button", name="Show all")
        while more.count():
            more.first.click()
        text = check(tab)
        for written in (
            "<script>window.pwned=1</script>",
            "<img src=x onerror=window.pwned=1>",
            "U+202E",
            "U+200B",
            "U+001B",
        ):
            assert text.count(written) >= 4, written
        tab.page.reload()
        tab.sees("Thoughts")
        check(tab)


def test_names_that_a_model_makes_up_are_text(tmp_path: Path, desk: Open) -> None:
    steps = [turn(calls=[call(name, a=1)]) for name in ("<img src=x onerror=window.pwned=1>", "a\u202eb")]
    with console(tmp_path, *steps, "Well.") as (server, _):
        tab = desk(server.url)
        say(tab, "Go!")
        over(tab)
        check(tab)
