"""What clients carry for us: nobody reads it, nobody changes it, nobody else uses it."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.engine.sealing import Sealer, SealError, key_of
from antwort.errors import ConfigError

KEY = "k" * 40
OTHER = "o" * 40


def sealer_of(*keys: str) -> Sealer:
    return Sealer(lambda: keys)


@given(st.text(max_size=2000), st.text(max_size=20))
def test_what_is_sealed_comes_back(text: str, tenant: str) -> None:
    sealer = sealer_of(KEY)
    assert sealer.unseal("compaction", tenant, sealer.seal("compaction", tenant, text)) == text


def test_a_seal_shows_nothing_of_its_text_and_is_never_the_same() -> None:
    sealer = sealer_of(KEY)
    one, two = sealer.seal("p", "t", "the secret plan"), sealer.seal("p", "t", "the secret plan")
    assert one != two
    assert "secret" not in one
    assert sealer.knows(one)
    assert not sealer.knows("gAAAAA")
    assert not sealer.knows("aw1.*")
    assert not sealer_of(OTHER).knows(one)


@pytest.mark.parametrize(("purpose", "tenant"), [("p", "other"), ("other", "t"), ("pt", ""), ("", "pt")])
def test_a_seal_is_bound_to_its_purpose_and_tenant(purpose: str, tenant: str) -> None:
    sealer = sealer_of(KEY)
    with pytest.raises(SealError, match="somebody else"):
        sealer.unseal(purpose, tenant, sealer.seal("p", "t", "x"))


@given(st.integers(min_value=4), st.integers(1, 63))
def test_an_altered_seal_is_refused(place: int, shift: int) -> None:
    sealer = sealer_of(KEY)
    sealed = sealer.seal("p", "t", "x" * 50)
    place = 4 + place % (len(sealed) - 8)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    changed = alphabet[(alphabet.index(sealed[place]) + shift) % 64]
    with pytest.raises(SealError):
        sealer.unseal("p", "t", sealed[:place] + changed + sealed[place + 1 :])


@pytest.mark.parametrize("text", ["aw1.", "aw1.*", "aw1.QUJD", "aw1.é", "aw1." + "A" * 1000])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(SealError):
        sealer_of(KEY).unseal("p", "t", text)


def test_a_replaced_key_still_opens_what_it_sealed() -> None:
    old = sealer_of(OTHER).seal("p", "t", "x")
    assert sealer_of(KEY, OTHER).unseal("p", "t", old) == "x"
    with pytest.raises(SealError, match="does not have"):
        sealer_of(KEY).unseal("p", "t", old)


def test_a_small_seal_cannot_unpack_to_a_huge_text() -> None:
    sealer = sealer_of(KEY)
    with pytest.raises(SealError, match="too large"):
        sealer.unseal("p", "t", sealer.seal("p", "t", "x" * (64 * 1024 * 1024 + 1)))


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "data" / "encryption.key"
    key = key_of(None, file)
    assert key_of(None, file) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["encryption.key"]
    assert key_of(KEY, file) == KEY


def test_a_damaged_key_file_stops_the_start_with_the_cure(tmp_path: Path) -> None:
    file = tmp_path / "encryption.key"
    file.write_text("short")
    with pytest.raises(ConfigError, match="Restore it from a backup"):
        key_of(None, file)


def test_what_is_signed_can_be_verified_by_whoever_has_the_key_also_an_old_one() -> None:
    signed = sealer_of(KEY).sign("state run_1", "acme", b"data")
    later = sealer_of(OTHER, KEY)
    assert later.verify("state run_1", "acme", signed) == b"data"


@pytest.mark.parametrize(
    ("purpose", "tenant", "change"),
    [
        ("state run_2", "acme", lambda signed: signed),
        ("state run_1", "umbrella", lambda signed: signed),
        ("state run_1", "acme", lambda signed: signed[:-1] + b"x"),
        ("state run_1", "acme", lambda signed: b"x" + signed[1:]),
        ("state run_1", "acme", lambda _: b""),
        ("state run_1", "acme", lambda _: b"x" * 32 + b"data"),
    ],
)
def test_what_was_signed_otherwise_is_refused(purpose: str, tenant: str, change: Callable[[bytes], bytes]) -> None:
    ours = sealer_of(KEY)
    signed = ours.sign("state run_1", "acme", b"data")
    with pytest.raises(SealError):
        ours.verify(purpose, tenant, change(signed))
