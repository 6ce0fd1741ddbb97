"""The tests of questions run on each database there is."""

from tests.http.conftest import _on_each_database

__all__ = ["_on_each_database"]
