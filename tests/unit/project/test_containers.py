"""The image and the composition fit the sources. No container engine is needed to see that."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kohort.broker.config import load

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    composition = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = composition["services"]
    return found


def image_environment() -> dict[str, str]:
    block = re.search(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    assert block is not None
    return dict(re.findall(r"(\w+)=(\S+)", block[1]))


def test_the_settings_of_the_image_and_the_composition_are_accepted(
    services: dict[str, Any],
) -> None:
    environment = image_environment() | services["broker"]["environment"]

    loaded = load(file=None, overrides=[], environment=environment)

    assert not loaded.warnings
    assert not loaded.ignored
    ports = {endpoint.port for endpoint in loaded.config.listener_endpoints}
    assert ports == {9092, 29092}
    assert {endpoint.host for endpoint in loaded.config.advertised_endpoints} == {
        "localhost",
        "broker",
    }


def test_the_image_keeps_its_data_in_its_volume_and_does_not_run_as_root() -> None:
    directory = image_environment()["KAFKA_LOG_DIRS"]

    assert f"VOLUME {directory}\n" in DOCKERFILE
    final_stage = DOCKERFILE.split("FROM ")[-1]
    assert "\nUSER kohort\n" in final_stage
    assert f"--owner kohort --group kohort --mode 0700 {directory}\n" in final_stage


def test_the_image_contains_every_package_of_the_distribution() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^packages = \[(\"kohort\")\]$", project, re.MULTILINE)
    assert listed is not None
    allowed = (ROOT / ".dockerignore").read_text().splitlines()

    for package in re.findall(r'"(\w+)"', listed[1]):
        assert f"COPY {package} {package}\n" in DOCKERFILE
        assert f"!{package}" in allowed


def test_every_mounted_file_is_in_the_tree(services: dict[str, Any]) -> None:
    mounts = [mount for service in services.values() for mount in service.get("volumes", [])]
    local = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]

    assert local
    for path in local:
        assert (ROOT / path).exists(), path


def test_prometheus_scrapes_the_port_where_the_broker_has_its_metrics(
    services: dict[str, Any],
) -> None:
    scrapes = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = [
        target
        for job in scrapes["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    ]
    config = load(file=None, overrides=[], environment=image_environment()).config

    assert f"broker:{config.kohort_metrics_port}" in targets
    assert "broker" in services


def test_grafana_opens_with_the_dashboard_and_its_data_source(services: dict[str, Any]) -> None:
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards" / Path(home).name).read_text())
    sources = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text()
    )

    known = {source["uid"] for source in sources["datasources"]}
    used = set(re.findall(r'"uid": "(\w+)"', json.dumps(dashboard["panels"])))
    assert used <= known
    assert dashboard["panels"]


def test_the_secure_composition_is_what_the_page_about_it_says() -> None:
    text = (ROOT / "deploy/secure/docker-compose.yml").read_text()
    services = yaml.safe_load(text)["services"]
    broker, users = services["broker"], services["broker-users"]

    environment = image_environment() | broker["environment"]
    loaded = load(file=None, overrides=[], environment=environment)

    assert not loaded.warnings
    assert not loaded.ignored
    (listener,) = loaded.config.listener_endpoints
    assert listener.listener == "SASL_SSL"
    assert broker["ports"] == [f"{listener.port}:{listener.port}"]
    mounts = dict(mount.split(":")[:2] for mount in broker["volumes"])
    assert mounts["./broker.pem"] == environment["KAFKA_SSL_KEYSTORE_LOCATION"]
    # Users are added to the data that the broker will find, by the image's own command.
    assert users["volumes"] == [f"broker-data:{environment['KAFKA_LOG_DIRS']}"]
    assert mounts["broker-data"] == environment["KAFKA_LOG_DIRS"]
    assert f"broker-users add admin --data {environment['KAFKA_LOG_DIRS']}\n" in text
    assert users["entrypoint"] == ["kohort", "users"]
    assert environment["KAFKA_SUPER_USERS"] == "User:admin"
    uid = re.search(r"--uid (\d+)", DOCKERFILE)
    assert uid is not None
    assert f"chown {uid[1]} deploy/secure/broker.pem" in text


def test_the_secure_composition_has_the_settings_of_the_recipe() -> None:
    page = (ROOT / "docs" / "securing-it.md").read_text()
    recipe = page.partition("\n## TLS and SCRAM\n")[2].partition("```properties\n")[2]
    settings = dict(line.split("=", 1) for line in recipe.partition("```")[0].splitlines())
    composition = yaml.safe_load((ROOT / "deploy/secure/docker-compose.yml").read_text())
    environment = image_environment() | composition["services"]["broker"]["environment"]

    for name, value in settings.items():
        given = environment[f"KAFKA_{name.upper().replace('.', '_')}"]
        assert given.removeprefix("/run/secrets/") == value, name
