"""Secrets and personal data by pattern: what is found, what only looks like it, and what operators may look for."""

import random
from typing import Any

import pytest
from pydantic import ValidationError

from antwort.functions import Allow, CheckedCall, Mask, Refuse
from antwort.functions.checks import masked
from antwort.providers.guardrails import Guardrails
from antwort.providers.guardrails.expressions import Expression
from antwort.providers.guardrails.patterns import Patterns
from antwort.providers.guardrails.settings import PatternSettings
from antwort.testing import passed_answer, verdict_of

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/=\nabc\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJlLWhlcmU"
FOUND = [
    ("key sk-proj-abcdefghij0123456789 here", "key [api_key] here"),
    ("sk-ant-api03-abcdefghij_0123456789-x.", "[api_key]."),
    ("AKIAIOSFODNN7EXAMPLE", "[api_key]"),
    ("ghp_" + "a1" * 18, "[api_key]"),
    ("AIza" + "b" * 35 + " and more", "[api_key] and more"),
    (f"before\n{PEM}\nafter", "before\n[private_key]\nafter"),
    ("-----BEGIN PRIVATE KEY-----\nMIIEow", "[private_key]"),
    (f"a {JWT} b", "a [token] b"),
    ("Authorization: Bearer abcdefghijklmnopqrstuv==", "Authorization: Bearer [token]"),
    ("postgres://me:s3cr3t@db/x", "postgres://me:[password]@db/x"),
    ("IBAN DE89 3704 0044 0532 0130 00 please", "IBAN [iban] please"),
    ("GB29NWBK60161331926819", "[iban]"),
    ("card 4111 1111 1111 1111 12/26", "card [credit_card] 12/26"),
    ("12 5500-0000-0000-0004", "12 [credit_card]"),
    ("378282246310005", "[credit_card]"),
    ("n12 4111111111111111", "n12 [credit_card]"),
    (r'{"card": "one\n4111111111111111"}', r'{"card": "one\n[credit_card]"}'),
    ("卡号4111111111111111是我的", "卡号[credit_card]是我的"),
    ("mail to jane.doe+x@mail.example.co.uk!", "mail to [email]!"),
    ("call +49 (30) 123456-78 or 555-123-4567", "call [phone] or [phone]"),
    ("ring 030 1234567", "ring [phone]"),
]
CLEAN = [
    "task-force and risk-averse people",
    "sk-short",
    "DE89 3704 0044 0532 0130 01",
    "4111 1111 1111 1112",
    "0000 0000 0000 0000",
    "commit 6792656571029d0f5677, and a4111111111111111 of 4111-1111-1111-1111f",
    "version 1.2.3.4, on 2024-01-31 at 12:30, for 1,234,567 people",
    "me@home",
    "https://example.com:8080/a@b",
    "-----BEGIN PUBLIC KEY-----",
    "pi is 3.14159265358979323846",
]
ALL = {"email": "mask", "phone": "mask"}


def all_patterns(**settings: Any) -> Patterns:
    return Patterns(PatternSettings(**{**ALL, **settings}))


def shown(text: str, patterns: Patterns | None = None) -> str:
    for one in reversed((patterns or all_patterns()).find(text)):
        text = f"{text[: one.start]}[{one.kind}]{text[one.end :]}"
    return text


@pytest.mark.parametrize(("text", "wanted"), FOUND)
def test_it_is_found_as_a_whole_and_nothing_beside_it(text: str, wanted: str) -> None:
    assert shown(text) == wanted
    assert shown(f"({text})") == f"({wanted})" or "PRIVATE" in text


@pytest.mark.parametrize("text", CLEAN)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize("text", [text for text, _ in FOUND])
async def test_it_is_not_shown_however_an_answer_is_cut(text: str) -> None:
    provider = Guardrails.from_settings({"patterns": ALL})
    whole = f"Some words before, then {text} and some words behind it, as answers have them."
    wanted = (await passed_answer(provider, [whole])).text
    seeded = random.Random(7)
    for _ in range(4):
        cuts = sorted(seeded.sample(range(1, len(whole)), 12))
        pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        assert (await passed_answer(Guardrails.from_settings({"patterns": ALL}), pieces)).text == wanted
    assert (await passed_answer(Guardrails.from_settings({"patterns": ALL}), whole)).text == wanted


def test_much_text_is_searched_in_pieces_and_nothing_at_their_ends_is_missed() -> None:
    key = "sk-" + "a" * 30
    text = "".join(f"{'x ' * (24_990 + shift)}{key} " for shift in range(-20, 20))
    assert shown(text).count("[api_key]") == 40
    assert key not in shown(text)


LONG_TOKEN = f"eyJ{'hbGciOiJIUzI1NiJ9' * 8}.eyJ{'A9b8C7d6' * 200}.{'sIgn' * 90}"


def test_what_is_longer_than_a_piece_can_be_is_found_at_its_end() -> None:
    patterns = all_patterns()
    for before in (49_000, 49_900, 49_990):
        assert shown(f"{'word ' * (before // 5)}{LONG_TOKEN} end", patterns).endswith("word [token] end")
    assert shown(f"{'word ' * 9990}Bearer {'aB3' * 1000} end", patterns).endswith("Bearer [token] end")


@pytest.mark.parametrize("size", [1, 40, 1000])
async def test_what_stands_in_a_long_line_of_json_is_not_shown(size: int) -> None:
    text = f'{{"a":"{"x" * 3000}","token":"{LONG_TOKEN}","b":"{"y,z" * 1000}"}}'
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    found = await passed_answer(Guardrails.from_settings({}), pieces)
    assert found.text == text.replace(LONG_TOKEN, "[token]")


async def test_what_is_found_is_masked_refused_or_let_through_as_the_settings_say() -> None:
    text = "sk-proj-abcdefghij0123456789 of me@example.com"
    provider = Guardrails.from_settings({"patterns": {"api_key": "allow", "email": "mask"}})
    verdict = await verdict_of(provider, "input", text)
    assert isinstance(verdict, Mask)
    assert masked(text, verdict.spans) == "sk-proj-abcdefghij0123456789 of [email]"
    refusing = Guardrails.from_settings({"patterns": {"api_key": "refuse"}})
    assert await verdict_of(refusing, "result", text) == Refuse("This is not passed on, since it holds: api key.")
    assert await verdict_of(Guardrails.from_settings({}), "output", "me@example.com") == Allow()


async def test_arguments_are_searched_wherever_texts_are_in_them() -> None:
    given = {"to": ["me@example.com"], "n": {"card": 4111111111111111, "x@y.example": 1, "id": 4111111111111112}}
    provider = Guardrails.from_settings({"patterns": ALL})
    verdict = await verdict_of(provider, "call", CheckedCall("send", given))
    wanted = {"to": ["[email]"], "n": {"card": "[credit_card]", "[email]": 1, "id": 4111111111111112}}
    assert verdict == Mask(arguments=wanted)
    refusing = Guardrails.from_settings({"patterns": {"email": "refuse"}})
    assert isinstance(await verdict_of(refusing, "call", CheckedCall("send", given)), Refuse)


def test_only_the_stages_that_are_set_are_checked() -> None:
    stages = {spec.stage for spec in Guardrails.from_settings({"patterns": {"stages": ["input", "call"]}}).checks()}
    assert stages == {"input", "call"}
    assert Guardrails.from_settings({"patterns": None}).checks() == []


# --- expressions of operators ----------------------------------------------------------------------------------------


def test_own_expressions_are_looked_for_under_their_names() -> None:
    own = {"staff_number": {"pattern": r"\b(?:EMP|EXT)-[0-9]{4,8}\b"}, "project": {"pattern": "Blue ?bird"}}
    patterns = all_patterns(own=own)
    assert shown("EMP-12345 works on Bluebird, not EMP-1", patterns) == "[staff_number] works on [project], not EMP-1"


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [("ab?c", 3), ("a{2,5}", 5), ("(?:ab|cde)(?:fgh){3}", 12), (r"[^\]a]{1,4}?x", 5), (r"\bx\d{3}$", 4)],
)
def test_it_is_known_how_long_a_match_can_be(pattern: str, longest: int) -> None:
    assert Expression(pattern).longest == longest


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("a+", "has no end"),
        ("(a{1,5}){1,5}b", "may not be repeated"),
        ("(?:a|a){9}b", "may not be repeated"),
        ("(?=a)b", "may have"),
        (r"(a)\1", "may not have"),
        ("a{2,}", "has no end"),
        (r"\d{1,40}\d{1,40}x", "ways"),
        ("(?:a{,50}){,50}b", "may not be repeated"),
        ("(?:a{0,20000}){0,20000}b", "may not be repeated"),
        ("a{,}b", "has no end"),
        ("a{900}b{900}", "characters"),
        ("(", "no regular expression"),
        ("a?", "matches nothing"),
    ],
)
def test_an_expression_that_could_hold_others_up_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        PatternSettings.model_validate({"own": {"mine": {"pattern": pattern}}})
