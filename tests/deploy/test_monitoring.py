"""Dashboard, alerts and the rule for the autoscaler ask for metrics and labels that servers export."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from scripts import chart

from antwort.functions.metrics import MetricDescriptor
from antwort.providers.file_search import FileSearch
from antwort.providers.web_search import WebSearch
from antwort.testing import ScriptServer, call, served, turn
from antwort.testing.apps import ServedApp

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())
ADAPTER: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/adapter.yaml").read_text())
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/antwort.json").read_text())
OF_PROMETHEUS = {"up": {"job", "instance"}}
OF_TARGETS = {"job", "instance", "namespace", "pod"}
"""Labels that Prometheus adds."""
_WORDS = {"by", "and", "or", "unless", "on", "ignoring", "without", "bool", "group_left", "group_right"}
_MATCHERS = re.compile(r'\{(?:\s*\w+\s*(?:=~|!~|!=|=)\s*"[^"]*"\s*,?)*\s*\}')
_GROUPS = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def adapter_rules() -> list[dict[str, Any]]:
    return [rule for kind in ("custom", "external") for rule in ADAPTER["rules"][kind]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Return every expression with the place where it stands."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            inner = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert inner is not None
            yield f"variable {variable['name']}", f"sum by ({inner[2]}) ({inner[1]})"
    for rule in adapter_rules():
        yield "adapter", rule["seriesQuery"]
        query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", 'pod="x"')
        yield "adapter", query


def asked(expression: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels that an expression names."""
    labels = {label for matcher in _MATCHERS.findall(expression) for label in re.findall(r"(\w+)\s*[=!]~?", matcher)}
    rest = _MATCHERS.sub(" ", expression)
    assert "{" not in rest, f"not understood: {expression}"
    labels |= {label.strip() for group in _GROUPS.findall(rest) for label in group.split(",")}
    rest = re.sub(r"\[[^\]]*\]", " ", _GROUPS.sub(" ", rest))
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*\b(?!\s*\()", rest)
    return set(names) - _WORDS, labels


def samples_of(app: ServedApp) -> dict[str, set[str]]:
    """Return the series of /metrics with their labels; those of which there is none yet by what providers declare."""
    declared = {
        each._full_name: set(each._labelnames)
        for provider in (FileSearch, WebSearch)
        for each in vars(provider).values()
        if isinstance(each, MetricDescriptor)
    }
    found: dict[str, set[str]] = dict(OF_PROMETHEUS)
    for family in text_string_to_metric_families(app.get("/metrics").text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
        if not family.samples and name in declared:
            endings = {"histogram": {"_bucket": {"le"}, "_sum": set(), "_count": set()}}.get(family.type, {"": set()})
            found |= {f"{name}{ending}": declared[name] | more for ending, more in endings.items()}
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What a server says that has worked."""
    with ScriptServer([turn(calls=[call("brew", leaf="green")]), turn("Tea.")]) as model:
        config = {
            "data_dir": tmp_path_factory.mktemp("data"),
            "backends": {"main": {"url": model.url}},
            "providers": {
                "file_search": {"enabled": True},
                "sub_agents": {"enabled": True},
                "user": {"enabled": True},
                "web_search": {"enabled": True, "settings": {"url": "http://127.0.0.1:9"}},
            },
        }

        def brew(leaf: str) -> str:
            """Brew tea."""
            return leaf

        with served(config, functions=[brew]) as app:
            body = {"input": "Tea?", "model": "any", "stream": True, "tools": [{"type": "function", "name": "brew"}]}
            app.request("POST", "/v1/responses", body=body)
            app.get("/healthz")  # an answer is counted after it was sent, so in any case before the next one
            return samples_of(app)


def test_every_metric_and_label_is_exported(exported: dict[str, set[str]]) -> None:
    wrong = []
    for place, expression in expressions():
        names, labels = asked(expression)
        assert names, place
        wrong += [f"{place}: no metric {name}" for name in names - exported.keys()]
        # Each label must be one of all metrics in the expression, since they are divided by each other.
        wrong += [
            f"{place}: {name} has no label {label}"
            for name in names & exported.keys()
            for label in labels - exported[name] - OF_TARGETS
        ]
    assert wrong == []


@pytest.mark.parametrize(
    ("expression", "names", "labels"),
    [
        ('up{job="antwort"} == 0', {"up"}, {"job"}),
        ('sum by (a, b) (rate(x_total{c=~"5..", d!=""}[5m])) / sum by (a) (y) > 0.1', {"x_total", "y"}, set("abcd")),
        ("histogram_quantile(0.9, sum by (le) (rate(z_bucket[$__rate_interval])))", {"z_bucket"}, {"le"}),
    ],
)
def test_an_expression_is_understood(expression: str, names: set[str], labels: set[str]) -> None:
    assert asked(expression) == (names, labels)


def test_a_name_that_nobody_exports_is_found(exported: dict[str, set[str]]) -> None:
    assert "antwort_http_requests" not in exported  # the family; the series ends in _total
    assert exported["antwort_http_requests_total"] == {"method", "path", "status"}
    assert exported["antwort_ingestion_files_total"] == {"status"}


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description"}
        told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        grouped = {label.strip() for group in _GROUPS.findall(rule["expr"]) for label in group.split(",")}
        assert not grouped or told <= grouped, rule["alert"]


def test_panels_do_not_overlap_and_ask_the_chosen_source() -> None:
    places = [(panel["gridPos"], panel["id"]) for panel in DASHBOARD["panels"]]
    taken = [
        (x, y) for at, _ in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert len({number for _, number in places}) == len(places)
    sources = [panel["datasource"] for panel in panels()] + [
        each["datasource"] for panel in panels() for each in panel["targets"]
    ]
    assert [source for source in sources if source != {"type": "prometheus", "uid": "${datasource}"}] == []


def test_the_autoscalers_ask_for_what_the_rules_make() -> None:
    autoscaling = {"enabled": True, "queue": {"enabled": True}}
    changes = {"autoscaling": autoscaling, "workers": {"enabled": True, "autoscaling": {"enabled": True}}}
    scaling = [text for name, text in chart.rendered(changes).items() if name.endswith("autoscaler.yaml")]
    metrics = [metric for text in scaling for metric in yaml.safe_load(text)["spec"]["metrics"]]
    asked_for = {
        metric[kind]["metric"]["name"] for metric in metrics for kind in ("pods", "external") if kind in metric
    }
    assert asked_for == {rule["name"]["as"] for rule in adapter_rules()}
