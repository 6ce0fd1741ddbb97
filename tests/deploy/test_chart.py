"""The chart renders, its parts fit together, and the plain manifests are what it renders."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from scripts import chart
from tests.deploy.configurations import loaded, seconds_to_stop, variables_in

import antwort
from antwort.cli.main import root

ROOT = Path(__file__).parents[2]
EVERYTHING: dict[str, Any] = {
    "secret": {"values": {"API_KEY": 'it is: "a" # key', "DATABASE_PASSWORD": "0123"}},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/files"}},
    "autoscaling": {"enabled": True, "queue": {"enabled": True}},
    "image": {"pullSecrets": [{"name": "registry"}]},
    "workers": {"enabled": True, "autoscaling": {"enabled": True}},
}
LEAST: dict[str, Any] = {"networkPolicy": {"enabled": False}, "replicas": 1}


def objects(changes: dict[str, Any] | None = None, release: str = "antwort") -> dict[str, Any]:
    texts = chart.rendered(changes, release).values()
    found = [each for text in texts for each in yaml.safe_load_all(text)]
    return {f"{each['kind']} of workers" if is_of_workers(each) else each["kind"]: each for each in found}


def is_of_workers(found: dict[str, Any]) -> bool:
    return bool(found["metadata"]["labels"]["app.kubernetes.io/name"] == "antwort-worker")


def pod_of(found: dict[str, Any], kind: str) -> Any:
    """Return the template of pods of a deployment or of a job."""
    spec = found[kind]["spec"]
    return (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    assert chart.MANIFESTS.read_text() == chart.manifests(), "run `make manifests`"


def test_what_there_is_depends_on_the_values() -> None:
    always = {"ConfigMap", "CronJob", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}
    assert objects().keys() == always | {"NetworkPolicy"}
    assert objects(LEAST).keys() == always
    more = {"NetworkPolicy", "Secret", "HorizontalPodAutoscaler"}
    of_workers = {"Deployment of workers", "HorizontalPodAutoscaler of workers"}
    assert objects(EVERYTHING).keys() == always | more | of_workers


@pytest.mark.parametrize("changes", [{}, EVERYTHING, LEAST])
def test_the_parts_find_each_other(changes: dict[str, Any]) -> None:
    found = objects(changes, "ours")
    pod = pod_of(found, "Deployment")
    labels = pod["metadata"]["labels"]
    selectors = [found["Service"]["spec"]["selector"], found["Deployment"]["spec"]["selector"]["matchLabels"]]
    selectors.append(found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    assert [selector for selector in selectors if selector != labels] == []
    assert pod_of(found, "CronJob")["metadata"]["labels"] != labels
    kinds = [kind for kind in ("Deployment", "CronJob", "Deployment of workers") if kind in found]
    if "NetworkPolicy" in found:
        policy = found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items()
        assert [kind for kind in kinds if not policy <= pod_of(found, kind)["metadata"]["labels"].items()] == []
    for kind in kinds:
        spec = pod_of(found, kind)["spec"]
        [container] = spec["containers"]
        assert spec["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"] == "ours"
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
        assert spec["volumes"][0]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
        assert container["envFrom"] == [{"secretRef": {"name": "antwort-secrets"}}]
    if "Secret" in found:
        assert found["Secret"]["metadata"]["name"] == "antwort-secrets"
        assert found["Secret"]["stringData"] == changes["secret"]["values"]
    if "HorizontalPodAutoscaler" in found:
        assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "ours"
        assert found["HorizontalPodAutoscaler of workers"]["spec"]["scaleTargetRef"]["name"] == "ours-worker"


def test_who_counts_servers_is_one() -> None:
    assert objects()["Deployment"]["spec"]["replicas"] == 3
    assert "replicas" not in objects(EVERYTHING)["Deployment"]["spec"]


def test_workers_differ_from_servers_by_what_they_do() -> None:
    found = objects({"workers": {"enabled": True, "replicas": 7}})
    pods = [pod_of(found, kind)["spec"] for kind in ("Deployment", "Deployment of workers")]
    selectors = [found[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "Deployment of workers")]
    assert selectors[0] != selectors[1] == pod_of(found, "Deployment of workers")["metadata"]["labels"]
    assert found["Deployment of workers"]["spec"]["replicas"] == 7
    [server], [worker] = (pod.pop("containers") for pod in pods)
    spread = [pod.pop("topologySpreadConstraints")[0].pop("labelSelector")["matchLabels"] for pod in pods]
    assert spread == selectors
    assert pods[0] == pods[1]
    assert server.pop("lifecycle") is not None  # nobody sends requests to a worker
    commands = [server.pop("args"), worker.pop("args")]
    assert server == worker
    assert [unknown_in(command) for command in commands] == [[], []]
    assert commands[1][-1] == str(worker["ports"][0]["containerPort"])


def unknown_in(command: list[str]) -> list[str]:
    """Return the words of a command that the command line does not know."""
    found: click.Command = root
    context = click.Context(root)
    words = list(command)
    while isinstance(found, click.Group):
        below = found.get_command(context, words[0])
        if below is None:
            return words
        found, words = below, words[1:]
    options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in words if word.startswith("-") and word not in options]


def test_the_upgrade_is_a_command() -> None:
    [container] = pod_of(objects(), "CronJob")["spec"]["containers"]
    assert unknown_in(container["args"]) == []
    assert unknown_in(["db", "up", "--config"]) == ["up", "--config"]


def test_the_configuration_is_one_that_servers_can_share(tmp_path: Path) -> None:
    text = objects()["ConfigMap"]["data"]["antwort.yaml"]
    assert yaml.safe_load(text) == chart.values()["config"]
    config = loaded(text, tmp_path)
    assert config.storage.url is not None
    assert config.storage.s3 is not None
    assert config.encryption.key is not None
    assert config.providers is not None
    assert config.providers["file_search"].settings["vector_backend"] == "qdrant"
    assert config.auth.api_keys
    pod = pod_of(objects(), "Deployment")["spec"]
    assert seconds_to_stop(config) + 5 <= pod["terminationGracePeriodSeconds"]
    [container] = pod["containers"]
    assert container["ports"][0]["containerPort"] == config.server.port
    assert str(config.data_dir) in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_a_change_of_the_configuration_starts_the_servers_anew() -> None:
    changed = objects({"config": {"server": {"port": 8080}}})
    notes = [pod_of(found, "Deployment")["metadata"]["annotations"]["antwort/config"] for found in (objects(), changed)]
    assert notes[0] != notes[1]


def test_the_page_tells_each_variable_that_the_secret_must_have() -> None:
    page = (ROOT / "docs/deploy.md").read_text()
    wanted = variables_in(objects()["ConfigMap"]["data"]["antwort.yaml"])
    assert {name for name in wanted if f"--from-literal={name}=" not in page} == set()


@pytest.mark.parametrize("kind", ["Deployment", "Deployment of workers", "CronJob"])
def test_pods_have_no_rights_that_they_do_not_need(kind: str) -> None:
    spec = pod_of(objects(EVERYTHING), kind)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_probes_ask_what_there_is() -> None:
    [container] = pod_of(objects(), "Deployment")["spec"]["containers"]
    asked = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert asked == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def test_it_is_of_this_version() -> None:
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert about["appVersion"] == chart.values()["image"]["tag"] == antwort.__version__


def test_every_value_is_used() -> None:
    templates = "\n".join(path.read_text() for path in (chart.CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", templates))
    unused = [
        path for path in paths(chart.values()) if not any(path == each or path.startswith(f"{each}.") for each in used)
    ]
    assert unused == []


def paths(tree: dict[str, Any], above: str = "") -> list[str]:
    found = []
    for key, value in tree.items():
        found += paths(value, f"{above}{key}.") if isinstance(value, dict) and value else [f"{above}{key}"]
    return found


SCOPE = {"Values": {"on": True, "off": False, "name": "tea", "list": ["a"], "tree": {"b": 1, "a": "x: y"}}}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("n: {{ .Values.name }}", "n: tea"),
        ("n: {{ .Values.name | quote }}", 'n: "tea"'),
        ("a\n  {{- if .Values.on }}\nb\n  {{- else }}\nc\n  {{- end }}\nd", "a\nb\nd"),
        ("a\n  {{- if not .Values.on }}\nb\n  {{- else }}\nc\n  {{- end }}\nd", "a\nc\nd"),
        ("{{- if .Values.off }}{{ if .Values.on }}a{{ else }}b{{ end }}{{ end }}", ""),
        ("n: {{ .Values.name -}}\n  x", "n: teax"),
        ("t:\n  {{- toYaml .Values.tree | nindent 2 }}\n", "t:\n  a: 'x: y'\n  b: 1\n"),
        ("l: {{ toYaml .Values.list }}", "l: - a"),
    ],
)
def test_a_template_is_rendered(template: str, text: str) -> None:
    assert chart.render(template, SCOPE) == text


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ if .Values.on }}a", "a block has no end"),
        ("a{{ end }}", "'end' without a block"),
        ("{{ else }}", "'else' without a block"),
        ("{{ .Values.nam }}", r"there is no value '\.Values\.nam'"),
        ("{{ .Values.name | upper }}", "'upper' is not known here"),
        ('{{ include "x" . }}', "is not known here"),
        ("{{ range .Values.list }}{{ end }}", "is not known here"),
        ("{{ .Values.tree }}", "is written by toYaml only"),
        ("{{ .Values.name }", "an action is not closed"),
        ("{ .Values.name }}", "an action is not closed"),
    ],
)
def test_a_template_that_is_wrong_or_needs_more_is_refused(template: str, said: str) -> None:
    with pytest.raises(chart.ChartError, match=said):
        chart.render(template, SCOPE)
