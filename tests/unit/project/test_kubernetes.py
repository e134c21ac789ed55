"""The manifest for Kubernetes is one, and starts the broker that the image has."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kohort.broker.config import load
from kohort.broker.config.listeners import uses_tls_for_http

ROOT = Path(__file__).parents[3]
RESOURCES: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "kohort.yml").read_text())
)
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def stateful_set() -> dict[str, Any]:
    (found,) = (one for one in RESOURCES if one["kind"] == "StatefulSet")
    return found


def container() -> dict[str, Any]:
    found: dict[str, Any] = stateful_set()["spec"]["template"]["spec"]["containers"][0]
    return found


WATCH: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "watch.yml").read_text())
)


@pytest.mark.parametrize(
    "resource", [*RESOURCES, *WATCH], ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_kubernetes_own_schemas_find_nothing_wrong(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


def test_the_schemas_do_find_what_is_wrong() -> None:
    (service,) = (one for one in RESOURCES if one["kind"] == "Service")
    wrong = {**service, "spec": {**service["spec"], "portz": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_its_settings_are_accepted_with_those_of_the_image() -> None:
    block = re.search(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    assert block is not None
    image = dict(re.findall(r"(\w+)=(\S+)", block[1]))
    (settings,) = (one for one in RESOURCES if one["kind"] == "ConfigMap")
    assert container()["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"]}}]
    given = settings["data"]
    loaded = load(file=None, overrides=[], environment=image | given)
    assert not loaded.warnings
    assert [str(one) for one in loaded.config.advertised_endpoints] == ["PLAINTEXT://kohort:9092"]


def test_the_settings_for_tls_are_accepted_and_name_files_of_the_secret() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    found = re.search(r"```yaml\n(data:\n.*?)```", page, re.DOTALL)
    assert found is not None
    given = yaml.safe_load(found[1])["data"]
    loaded = load(file=None, overrides=[], environment=given)
    assert not loaded.warnings
    assert uses_tls_for_http(loaded.own)
    mounts = {one["name"]: one["mountPath"] for one in container()["volumeMounts"]}
    for path in (value for value in given.values() if value.startswith("/")):
        assert Path(path).parent == Path(mounts["keys"])
        assert f"--from-file={Path(path).name}" in page


def test_prometheus_finds_the_metrics_under_the_job_of_the_alerts() -> None:
    path = ROOT / "deploy" / "kubernetes" / "servicemonitor.yml"
    spec = yaml.safe_load(path.read_text())["spec"]
    (service,) = (one for one in RESOURCES if one["kind"] == "Service")
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][spec["jobLabel"]] == "kohort"
    assert spec["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_ports_user_and_volume_are_those_of_the_image() -> None:
    exposed = re.search(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert exposed is not None
    assert [str(one["containerPort"]) for one in container()["ports"]] == exposed[1].split()
    security = stateful_set()["spec"]["template"]["spec"]["securityContext"]
    assert f"--uid {security['runAsUser']} " in DOCKERFILE
    mounts = {one["mountPath"] for one in container()["volumeMounts"]}
    assert f"VOLUME {'/var/lib/kohort'}\n" in DOCKERFILE
    assert "/var/lib/kohort" in mounts


def test_the_service_leads_to_the_broker() -> None:
    (service,) = (one for one in RESOURCES if one["kind"] == "Service")
    labels = stateful_set()["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    names = {one["name"] for one in container()["ports"]}
    assert {one["targetPort"] for one in service["spec"]["ports"]} <= names
