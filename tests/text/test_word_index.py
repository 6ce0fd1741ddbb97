"""What is found by its words, and in which order."""

import pytest

from antwort.text.word_index import Text, WordIndex, best, words_of

NAMES = {
    "list_open_orders": "List the orders of a customer that are not closed.",
    "deleteCustomer": "Take a customer out of the books, for good.",
    "refund_payment": "Give a customer his money back.",
    "weather_forecast": "Tell what the next days will be like in a city.",
    "send_mail": "Write to somebody.",
    "HTTPStatus2": "Look up a status code.",
}
INDEX = WordIndex([[Text(name, 3.0), Text(about)] for name, about in NAMES.items()])


def found(query: str, most: int = 3, least: float = 0.5) -> list[str]:
    names = list(NAMES)
    return [names[number] for _, number in best([INDEX], query, most, least=least)]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("orders", "list_open_orders"),
        ("which order is open?", "list_open_orders"),
        ("delete customers", "deleteCustomer"),
        ("remove a client", "deleteCustomer"),
        ("money", "refund_payment"),
        ("REFUNDING payments", "refund_payment"),
        ("what will the weather be like", "weather_forecast"),
        ("mailing", "send_mail"),
        ("http status", "HTTPStatus2"),
    ],
)
def test_the_best_fit_comes_first(query: str, name: str) -> None:
    assert found(query)[0] == name


def test_nothing_is_found_where_no_word_fits() -> None:
    assert found("xyzzy") == found("") == found("!?") == []
    assert best([WordIndex([])], "orders", 3) == best([], "orders", 3) == []


def test_several_indexes_are_searched_as_one() -> None:
    halves = [[[Text(name, 3.0), Text(about)]] for name, about in NAMES.items()]
    split = [WordIndex(half) for half in halves]
    for query in ("customer orders", "weather", "delete a customer"):
        assert [place for place, _ in best(split, query, 6)] == [number for _, number in best([INDEX], query, 6)]


def test_what_is_alike_keeps_its_order() -> None:
    alike = WordIndex([[Text("one of many")]] * 5)
    assert best([alike], "many", 3) == [(0, 0), (0, 1), (0, 2)]


def test_what_fits_much_worse_is_left_out() -> None:
    assert found("open orders of a customer", most=6, least=0.9) == ["list_open_orders"]
    assert len(found("open orders of a customer", most=6, least=0.0)) > 1


def test_names_are_cut_into_words() -> None:
    assert [*words_of("listOpen_orders-v2 HTTPServer")] == ["list", "open", "order", "v", "2", "http", "server"]
    assert [*words_of("查询天气 Straße ёж")] == ["查询", "询天", "天气", "strass", "ёж"]
