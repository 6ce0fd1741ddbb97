import enum
import json
import math
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from antwort.observability import Redactor, redact
from antwort.observability.redaction import LONGEST_TEXT, MASK, is_secret_key

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl-_x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # credentials by their shape
        ("sent Bearer abc.def-ghi_1 to it", "sent Bearer *** to it"),
        ("(b'authorization', b'Bearer abcdefgh')", "(b'authorization', b'Bearer ***')"),
        ("BEARER   abcdefgh", "BEARER   ***"),
        ("key ak_4fGh_s3cr3t-_valueX used", "key ak_4fGh_*** used"),
        ("key sk-proj-abcDEF123456 used", "key sk-*** used"),
        (f"cookie {JWT}, sent", "cookie ***, sent"),
        # URLs
        ("postgresql://app:hunter2@db:5432/x", "postgresql://app:***@db:5432/x"),
        ("postgresql://app:p@ss:w@db/x", "postgresql://app:***@db/x"),
        ("redis://:hunter2@cache", "redis://:***@cache"),
        ("GET /x?api_key=hunter2&page=2 HTTP/1.1", "GET /x?api_key=***&page=2 HTTP/1.1"),
        ("GET /x?page=2&access_token=hunter2", "GET /x?page=2&access_token=***"),
        # assignments
        ("password=hunter2 user=me", "password=*** user=me"),
        ("PASSWORD = 'hun ter2', user=me", "PASSWORD = '***', user=me"),
        ("Settings(client_secret='hunter2', size=3)", "Settings(client_secret='***', size=3)"),
        ("if password == 'hunter2'", "if password == '***'"),
        ("{:password=>\"hunter2\"}", "{:password=>\"***\"}"),
        # headers and YAML
        ("Authorization: Basic aHVudGVyMg==", "Authorization: ***"),
        ("authorization: Bearer hunter2", "authorization: ***"),
        ("x-api-key: hunter2", "x-api-key: ***"),
        ("  password: hunter", "  password: ***"),
        # JSON, also inside JSON, cut off, and with quotes in the secret
        ('{"password": "hunter2", "size": 3}', '{"password": "***", "size": 3}'),
        ('{"apiKey":"hun\\"ter2","size":3}', '{"apiKey":"***","size":3}'),
        ('{"text": "{\\"token\\": \\"hunter2\\"}"}', '{"text": "{\\"token\\": \\"***\\"}"}'),
        ('{"size": 3, "secret": "hunt', '{"size": 3, "secret": "***'),
        ('{"secret": ["hunter2", "hunter3"]}', '{"secret": ***}'),
        ("{'token': b'hunter2'}", "{'token': b'***'}"),
    ],
)  # fmt: skip
def test_secrets_are_masked(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=5 input_tokens: 12 token_usage=7",
        '{"max_tokens": 5, "usage": {"output_tokens": 12, "token_usage": 3}}',
        "tokenizer=cl100k secret_ref=vault passwordless=yes",
        "token=None password: null secret=false",
        "Invalid token: Signature has expired",
        "bearer token required; Bearer authentication is on",
        'WWW-Authenticate: Bearer realm="antwort"',
        "task-management-system disk-usage-report risk-assessment",
        "see http://localhost:8000/users/me@example.org and mailto:a@b",
        'url="http://localhost:80", mail="me@example.org"',
        "the key ak_ is a prefix, eyJ too, and sk-x is short",
        "the password was wrong",
        "",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        *("a", " ", "=", "\\", '"', "eyJ", "eyJa.", "ak_", "ak_a", "sk-", "://", "://a:", "://:@", "bearer "),
        *("bearer a", "password", "password ", "password=", 'password="', 'password=\\"', 'password="\\', "token:'\""),
        "token=[{",
    ],
)  # fmt: skip
def test_a_megabyte_of_anything_is_masked_in_linear_time(piece: str) -> None:
    # A quadratic pattern would need hours here, not milliseconds.
    redact((piece * 1_000_000)[:1_000_000])


@given(st.text())
@settings(deadline=None)
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.text(alphabet=st.characters(categories=["L", "N"]), min_size=12))
@settings(deadline=None)
def test_a_secret_never_survives_under_a_secret_name(secret: str) -> None:
    as_json = json.dumps({"a": 1, "password": secret}, ensure_ascii=False)
    for text in (f"password={secret}&size=3", as_json, f"http://me:{secret}@host/"):
        assert secret not in redact(text)


@pytest.mark.parametrize(
    "name",
    [
        *("password", "DB_PASSWORD", "client_secret", "token", "accessToken", "x-api-key", "apiKey", "Authorization"),
        *("secret_key", "private-key", "Set-Cookie", "credentials"),
    ],
)
def test_a_secret_name_is_recognised(name: str) -> None:
    assert is_secret_key(name)


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokens", "token_usage", "tokenizer", "key_id", "key", "secretary", "author", ""]
)
def test_an_ordinary_name_is_not_taken_for_a_secret(name: str) -> None:
    assert not is_secret_key(name)


def test_known_values_are_masked_in_every_spelling() -> None:
    redactor = Redactor(['s3cr"t/välue', "correct-horse", "correct-horse-battery"])
    assert redactor.text('got s3cr"t/välue') == "got ***"
    assert redactor.text(json.dumps({"x": 's3cr"t/välue'})) == '{"x": "***"}'
    assert redactor.text("x=s3cr%22t%2Fv%C3%A4lue") == "x=***"
    assert redactor.text("correct-horse-battery, correct-horse") == "***, ***"
    assert redactor.text("Bearer abcdefgh") == "Bearer ***"


def test_known_values_too_short_to_be_told_from_words_are_not_looked_for() -> None:
    assert Redactor(["", "a", "admin"]).text("an admin") == "an admin"


def test_values_that_are_learned_are_masked_beside_those_that_were_known() -> None:
    redactor = Redactor(["correct-horse"])
    redactor.learn(["battery-staple"])
    assert redactor.text("correct-horse battery-staple") == "*** ***"


def test_a_redactor_does_not_show_what_it_knows() -> None:
    assert "correct-horse" not in repr(Redactor(["correct-horse"]))


class Colour(enum.StrEnum):
    RED = "red"


class Broken:
    @override
    def __repr__(self) -> str:
        raise RuntimeError("no")


class BrokenMapping(Mapping[str, int]):
    @override
    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    @override
    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    @override
    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        (float("nan"), "nan"),
        (Colour.RED, "red"),
        ("password=x", "password=***"),
        ({"password": "x", "max_tokens": 5}, {"password": MASK, "max_tokens": 5}),
        ({"token": None, "secret": False}, {"token": None, "secret": False}),
        ({"deep": [{"api_key": ["x"]}, ("Bearer abcdefgh",)]}, {"deep": [{"api_key": MASK}, ["Bearer ***"]]}),
        ({1: "a", ("b",): "c"}, {"1": "a", "('b',)": "c"}),
        (b"token=x", "b'token=***'"),
        (Broken(), "<Broken whose repr raised RuntimeError>"),
        (BrokenMapping(), "<BrokenMapping that raised RuntimeError>"),
    ],
)  # fmt: skip
def test_any_value_becomes_json_without_secrets(value: object, expected: object) -> None:
    result = Redactor().value(value)
    assert result == expected
    assert json.loads(json.dumps(result, allow_nan=False)) == expected


def test_an_integer_too_long_to_print_does_not_cost_the_line() -> None:
    assert Redactor().value(10**5000) == "<int whose repr raised ValueError>"


def test_a_circular_value_is_cut() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert json.dumps(Redactor().value(loop)) == "[" * 8 + '"..."' + "]" * 8


PIECES = [
    "token",
    "password",
    "pass",
    ":",
    "=",
    "=>",
    "'",
    '"',
    " ",
    "\\",
    "bearer",
    "auth",
    "sk-",
    "ak_1_",
    "eyJ",
    ".",
    "a.b",
]
PIECES += [
    "://",
    "u:p",
    "@",
    "x",
    "abcdefgh",
    "hunter22",
    "null",
    "***",
    "[",
    "]",
    "s3cretvalue",
    "_",
    "-",
    "\0",
    "\n",
    "K",
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=4))
@settings(deadline=None)
def test_texts_that_are_clean_at_one_look_are_each_clean(texts: list[str]) -> None:
    for redactor in (Redactor(), Redactor(["s3cretvalue"])):
        if redactor.is_clean(texts):
            assert [redactor.value(text) for text in texts] == texts


def test_one_secret_among_texts_is_seen_at_one_look() -> None:
    redactor = Redactor(["s3cretvalue"])
    clean = ("acme", "ada@example.org", "req_0123456789abcdef", "call-1", "a text with several words.")
    assert redactor.is_clean(clean)
    for secret in ("s3cretvalue", "bearer abcdef123", "sk-0123456789", "password=hunter22", "eyJa.b.c", "x://u:p@h"):
        assert not redactor.is_clean((secret, *clean))
        assert not redactor.is_clean((*clean, secret))


@pytest.mark.parametrize("known", [(), ("s3cretvalue",)])
def test_fields_together_are_masked_as_each_of_them_is(known: tuple[str, ...]) -> None:
    redactor = Redactor(known)
    plain = {"tenant": "default", "note": "Bearer abcdef123", "found": "s3cretvalue", "seconds": 0.5, "rate": math.nan}
    for fields in (plain, plain | {"api_key": "x", "ok": True, "more": [{"token": "y"}], "nothing": None}):
        each = {name: redactor.field(name, value) for name, value in fields.items() if value is not None}
        assert redactor.fields(fields) == each


def test_a_field_is_masked_whole_for_its_name() -> None:
    redactor = Redactor()
    assert redactor.field("api_key", {"a": 1}) == MASK
    assert redactor.field("api_key", 123456) == MASK
    assert redactor.field("api_key", None) is None
    assert redactor.field("input_tokens", 12) == 12


@pytest.mark.parametrize("secret", ["first second third fourth", "sk-proj-abcDEF123456", f"Bearer {JWT}"])
@pytest.mark.parametrize("before", [2, 5, 8, 12, 20, 30])
def test_an_excerpt_of_a_long_text_has_no_half_of_a_secret(secret: str, before: int) -> None:
    start = LONGEST_TEXT - before
    text = "word " * (start // 5) + " " * (start % 5) + secret + " rest" * 1_000_000
    shown = Redactor(["first second third fourth"]).excerpt(text)
    assert shown.startswith("word word ")
    assert shown.endswith(f"[… the rest of {len(text):,} characters is left out …]")
    assert set(shown.partition(" [… ")[0].split()) <= {"word", "wor", "wo", "w"}
    assert len(shown) < LONGEST_TEXT
