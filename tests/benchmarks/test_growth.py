"""Growth is measured for each size, judged by its power, and drawn."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.growth import Sizes, growth_rows, power
from benchmarks.plots import HEIGHT, WIDTH, Plot, Series, plotted, shown_time

SVG = "{http://www.w3.org/2000/svg}"


def test_every_kind_is_measured_and_drawn(tmp_path: Path) -> None:
    sizes = Sizes(
        events=(1, 2),
        turns=(1, 2),
        functions=(1, 2),
        responses=(1, 2),
        tenants=(1, 3),
        files=(1, 2),
        chunks=(1, 2),
        asked=(1, 2),
        started=(1, 3),
        requests=0.1,
    )
    rows = growth_rows(rounds=1, folder=tmp_path, sizes=sizes)
    assert all(row.value is not None and row.value >= 0 for row in rows)
    assert sum("power" in row.what for row in rows) == 14
    assert [row.what for row in rows if row.what.endswith(", each")] == [
        f"growth with keys, or functions: start with {kind}, each" for kind in ("keys", "functions")
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"growth-{name}.svg"
        for name in (
            "chunks",
            "description",
            "events",
            "files",
            "functions",
            "history",
            "responses",
            "start",
            "tenants",
        )
    ]


@pytest.mark.parametrize(("costs", "found"), [((5, 5), 0), ((5, 50), 1), ((5, 500), 2), ((5, 4), 0)])
def test_the_power_tells_flat_from_linear_from_quadratic(costs: tuple[float, float], found: float) -> None:
    assert power(Series("", [(1, 1), (10, costs[0]), (100, costs[1])])) == pytest.approx(found)


def test_a_plot_has_its_points_at_their_places_and_nothing_outside() -> None:
    plot = Plot("A title & more", "things", [Series("one", [(1, 100), (10, 1000)]), Series("two", [(100, 99_000)])])
    document = ElementTree.fromstring(plotted(plot))
    texts = [text.text for text in document.iter(f"{SVG}text")]
    assert {"A title & more", "things", "one", "two", "1", "10", "100", "100 µs", "1 ms", "10 ms", "100 ms"} == set(
        texts
    )
    dots = [dot for dot in document.iter(f"{SVG}circle") if dot.find(f"{SVG}title") is not None]
    places = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in dots]
    assert len(places) == 3
    assert places[0][0] < places[1][0] < places[2][0]
    assert places[0][1] > places[1][1] > places[2][1]
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places)


def test_times_are_shown_as_one_reads_them() -> None:
    assert [shown_time(value) for value in (0.5, 1, 123.4, 1000, 12_345, 2_500_000)] == [
        "0.5 µs",
        "1 µs",
        "123 µs",
        "1 ms",
        "12.3 ms",
        "2.5 s",
    ]
