"""The manifest, the composition and the dashboard of `kohort watch` fit the sources."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kohort.broker.http import probe
from kohort.cli import whole_parser
from kohort.watch.catalogue import NAMES

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text()

SERVICE, DEPLOYMENT = yaml.safe_load_all((DEPLOY / "kubernetes" / "watch.yml").read_text())
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
COMPOSITION: dict[str, Any] = yaml.safe_load((DEPLOY / "watch" / "docker-compose.yml").read_text())
WATCH = COMPOSITION["services"]["watch"]

COMMANDS = {
    "kubernetes": CONTAINER["command"] + CONTAINER["args"],
    "compose": WATCH["entrypoint"] + WATCH["command"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_command_is_accepted_and_listens_where_it_is_asked(command: list[str]) -> None:
    program, *arguments = command
    assert program == "kohort"
    options = whole_parser().parse_args(arguments)
    assert (options.http.host, options.http.port) == ("", 9308)
    assert options.history
    assert [port["containerPort"] for port in CONTAINER["ports"]] == [options.http.port]
    assert WATCH["ports"] == [f"127.0.0.1:{options.http.port}:{options.http.port}"]
    # The image's own check asks this port.
    assert f'CMD ["python", "-m", "{probe.__name__}"]' in DOCKERFILE
    assert options.http.port == probe.PORT


def test_kubernetes_runs_it_as_the_user_of_the_image_and_the_service_leads_to_it() -> None:
    assert f"--uid {POD['spec']['securityContext']['runAsUser']} " in DOCKERFILE
    assert SERVICE["spec"]["selector"].items() <= POD["metadata"]["labels"].items()
    names = {port["name"] for port in CONTAINER["ports"]}
    assert {port["targetPort"] for port in SERVICE["spec"]["ports"]} <= names


def test_the_composition_keeps_the_history_in_a_volume_that_its_user_may_write_to() -> None:
    (volume,) = WATCH["volumes"]
    directory = volume.split(":")[1]
    assert f"VOLUME {directory}\n" in DOCKERFILE
    options = whole_parser().parse_args(COMMANDS["compose"][1:])
    assert Path(options.history).is_relative_to(directory)
    listeners = COMPOSITION["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert "DOCKER://kafka:29092" in listeners.split(",")
    assert options.bootstrap_server == "${KAFKA:-kafka:29092}"


def test_the_dashboard_asks_for_metrics_of_the_watched_clusters() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "kohort-watch.json").read_text())
    queries = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    assert len(queries) > 20
    known = NAMES | {f"{name}_bucket" for name in NAMES}
    for query in queries:
        asked = set(re.findall(r"\b(?:kafka|kohort)_[a-z0-9_]+\b", query))
        assert asked <= known, query
        assert 'cluster=~"$cluster"' in query
        assert "instance" not in query
