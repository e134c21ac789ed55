"""docs/apis.md says which APIs are served, in which versions, and which are not."""

import json
import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from kohort.broker.core.security.quotas import KEYS, KEYS_OF_IP
from kohort.broker.dispatch.registry import Api
from kohort.broker.handlers import load_handlers
from kohort.protocol.schema import VersionRange
from tests.support.processes.java_env import jar

DOCUMENT = (Path(__file__).parents[3] / "docs" / "apis.md").read_text(encoding="utf-8")
SERVED, _, _REST = DOCUMENT.partition("## Not served")
NOT_SERVED = _REST.partition("## Differences")[0]

ROWS = {
    int(key): (name, versions)
    for key, name, versions in re.findall(
        r"^\| (\d+) \| (\w+) \| ([\d-]+) \| .*\|$", SERVED, re.MULTILINE
    )
}
APIS = load_handlers()
every_api = pytest.mark.parametrize("api", APIS.values(), ids=[api.name for api in APIS.values()])


def shown(versions: VersionRange) -> str:
    low, high = versions.low, versions.high
    return str(low) if low == high else f"{low}-{high}"


@pytest.fixture(scope="module")
def kafkas() -> dict[int, dict[str, Any]]:
    """The requests that Kafka's brokers answer, as its own definitions have them."""
    found = {}
    with ZipFile(jar("kafka-clients")) as archive:
        for path in archive.namelist():
            if path.startswith("common/message/") and path.endswith("Request.json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(path).decode(), flags=re.MULTILINE)
                request = json.loads(text)
                if "broker" in request.get("listeners", ()):
                    found[int(request["apiKey"])] = request
    return found


@every_api
def test_an_api_is_listed_with_the_versions_that_are_served(api: Api) -> None:
    assert ROWS[api.key] == (api.name, shown(api.versions))


def test_every_limit_that_can_be_set_is_named() -> None:
    (row,) = re.findall(r"^\| 49 \| .*$", SERVED, re.MULTILINE)
    assert set(re.findall(r"`(\w+_\w+)`", row)) == KEYS | KEYS_OF_IP


def test_nothing_is_listed_that_is_not_served() -> None:
    assert list(ROWS) == list(APIS)


def test_advertised_versions_that_are_not_served_are_mentioned() -> None:
    wider = [api for api in APIS.values() if api.advertised != api.versions]

    assert [api.name for api in wider] == ["Produce"]
    assert re.search(rf"\| Produce \|.*Advertised from {wider[0].advertised.low},", SERVED)


def test_every_version_of_kafka_is_served(kafkas: dict[int, dict[str, Any]]) -> None:
    for key, (name, versions) in ROWS.items():
        valid = VersionRange.parse(kafkas[key]["validVersions"])
        if kafkas[key].get("latestVersionUnstable"):
            valid = VersionRange(valid.low, valid.high - 1)
        assert versions == shown(valid), name


def test_every_api_of_kafkas_brokers_is_either_served_or_named(
    kafkas: dict[int, dict[str, Any]],
) -> None:
    named = re.findall(r"(\d+) ([A-Z]\w+)", NOT_SERVED)

    assert len(named) == len(dict(named))
    assert {int(key): name for key, name in named} == {
        key: request["name"].removesuffix("Request")
        for key, request in kafkas.items()
        if key not in APIS
    }
