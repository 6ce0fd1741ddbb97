import re
import sys

import pytest

from antwort.lazy_imports import compiled_on_use, imported_on_use


def test_a_module_is_imported_when_something_of_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported_on_use("colorsys")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert "colorsys" not in sys.modules
    assert module.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
    assert "colorsys" in sys.modules


def test_a_module_is_not_imported_for_what_tools_ask_of_any_object(monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported_on_use("colorsys")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert not hasattr(module, "__wrapped__")
    assert not hasattr(module, "_mock_name")
    assert "colorsys" not in sys.modules


def test_what_is_not_there_is_told_when_it_is_used() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        imported_on_use("no_such_module").anything  # noqa: B018
    with pytest.raises(AttributeError, match="no_such_name"):
        imported_on_use("colorsys").no_such_name  # noqa: B018


def test_a_pattern_is_compiled_when_something_is_asked_of_it() -> None:
    pattern = compiled_on_use(r"(b+)", re.IGNORECASE)
    broken = compiled_on_use(r"(b+")
    assert pattern.sub(r"<\1>", "aBBa") == "a<BB>a"
    assert [found.group() for found in (pattern.search("abba"), pattern.match("b")) if found] == ["bb", "b"]
    assert compiled_on_use(b"b").findall(b"abab") == [b"b", b"b"]
    with pytest.raises(re.error):
        broken.search("b")
    with pytest.raises(AttributeError, match="no_such_name"):
        pattern.no_such_name  # type: ignore[attr-defined]  # noqa: B018
