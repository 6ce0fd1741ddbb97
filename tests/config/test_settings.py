from pathlib import Path
from typing import Literal

import pytest
import yaml
from pydantic import Field, SecretStr, ValidationError

from antwort.config import Settings


class Limits(Settings):
    size: int = 3


class Search(Settings):
    url: str = "http://localhost"
    api_key: SecretStr | None = None
    limits: Limits = Field(default_factory=Limits)
    ca: SecretStr | None = None
    ca_file: Path | None = None


class Signed(Settings):
    token: SecretStr


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Search.model_validate({"urll": "x"})


def test_values_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Search().url = "other"


def test_a_default_that_does_not_fit_its_type_is_refused() -> None:
    class Wrong(Settings):
        port: int = Field(default=-1, ge=0)

    with pytest.raises(ValidationError, match="greater than or equal"):
        Wrong()


@pytest.mark.parametrize("content", ["s3cret", "s3cret\n", "s3cret\r\n"])
def test_a_secret_is_read_from_a_file_without_its_last_newline(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_bytes(content.encode())

    settings = Signed.model_validate({"token_file": str(tmp_path / "token")})

    assert settings.token.get_secret_value() == "s3cret"


def test_spaces_of_a_secret_file_belong_to_the_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" s3cret \n")

    assert Signed.model_validate({"token_file": tmp_path / "token"}).token.get_secret_value() == " s3cret "


def test_a_secret_and_its_file_together_are_refused_with_key_and_path(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("from the file")

    with pytest.raises(ValidationError, match="give either 'api_key' or 'api_key_file'") as caught:
        Search.model_validate({"api_key": "inline", "api_key_file": str(path)})

    [error] = caught.value.errors()
    assert error["loc"] == ("api_key_file",)
    assert str(path) in error["msg"]
    assert "inline" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), (b"\xff\xfe", "not UTF-8"), (b"", "is empty"), (b"\n", "is empty")],
)
def test_a_secret_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ValidationError, match=reason) as caught:
        Signed.model_validate({"token_file": str(path)})

    [error] = caught.value.errors()
    assert error["loc"] == ("token_file",)
    assert str(path) in error["msg"]


@pytest.mark.parametrize("path", ["/", "\0", "~nobody-of-that-name/key", 5])
def test_odd_paths_of_secret_files_are_errors_of_validation(path: object) -> None:
    with pytest.raises(ValidationError):
        Signed.model_validate({"token_file": path})


def test_a_field_that_is_itself_called_file_stays_a_field() -> None:
    settings = Search.model_validate({"ca_file": "/etc/ca.pem"})

    assert settings.ca_file == Path("/etc/ca.pem")
    assert settings.ca is None


def test_a_field_with_an_alias_keeps_its_name_and_its_file(tmp_path: Path) -> None:
    class Aliased(Settings):
        api_key: SecretStr = Field(validation_alias="credential")

    (tmp_path / "key").write_text("s3cret")
    given = [{"credential": "s3cret"}, {"api_key": "s3cret"}, {"api_key_file": str(tmp_path / "key")}]

    assert {Aliased.model_validate(raw).api_key.get_secret_value() for raw in given} == {"s3cret"}


def test_an_empty_secret_file_key_counts_as_not_given() -> None:
    assert Search.model_validate({"api_key_file": None}).api_key is None


def test_a_section_without_content_is_empty() -> None:
    assert Search.model_validate({"limits": None}).limits == Limits()


def test_the_word_off_needs_no_quotes_though_it_is_false_in_yaml() -> None:
    class Reading(Settings):
        ocr: Literal["auto", "off"] | None = "auto"
        size: Literal["small", "large"] = "small"

    given = yaml.safe_load("ocr: off")
    assert given == {"ocr": False}
    assert Reading.model_validate(given).ocr == "off"
    with pytest.raises(ValidationError, match="'small' or 'large'"):
        Reading.model_validate({"size": False})


def test_errors_do_not_show_the_input() -> None:
    with pytest.raises(ValidationError) as caught:
        Search.model_validate({"api_keyy": "s3cret"})

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_numbers_are_finite(value: float) -> None:
    class Wait(Settings):
        seconds: float

    with pytest.raises(ValidationError, match="finite"):
        Wait(seconds=value)
