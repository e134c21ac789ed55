"""The pages of a watcher that has followed the recorded lab."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from kohort.broker.groups_seen import Readable
from kohort.broker.http.messages import HttpRequest, HttpResponse, ResponseOrStream
from kohort.broker.http.server import HttpServer
from kohort.broker.runtime.clock import SystemClock
from kohort.groups.history.json_form import from_json
from kohort.testing.inline_executor import InlineExecutor
from kohort.watch.catalogue import NAMES
from kohort.watch.core.changes import Taken
from kohort.watch.core.commits import committed
from kohort.watch.core.watcher import Watcher
from kohort.watch.positions import GroupOffsets, Positions
from kohort.watch.seen import News, encoded, text_of
from kohort.watch.site import Sources, WatchSite
from tests.support.browser import Browser
from tests.unit.watch.recorded import Json, follow_lab, new_watcher

DELETED, UPGRADED = "ck-classic-delgrp", "ck-classic-upgrade"
"""The second one has a rebalance without a record: what was before its upgrade is unknown."""

TOPIC_LINK = """document.querySelector('a[href^="#/topics"]')"""

BEHIND = 3
"""Records that every group has not read, of each partition."""


class Lab:
    """A site, and what its watcher knows."""

    def __init__(self, site: WatchSite, watcher: Watcher, history: list[Json]) -> None:
        self.site = site
        self.watcher = watcher
        self.history = history
        self.server = HttpServer(site.pages())

    async def answer(self, path: str, query: str = "") -> ResponseOrStream:
        return await self.server._page_of(HttpRequest("GET", path, query, ""))

    async def ask(self, path: str, query: str = "") -> HttpResponse:
        response = await self.answer(path, query)
        assert isinstance(response, HttpResponse)
        return response

    async def text(self, path: str, query: str = "") -> str:
        response = await self.ask(path, query)
        assert response.status is HTTPStatus.OK, path
        return b"".join(response.body).decode()

    async def json(self, path: str, query: str = "") -> Any:  # noqa: ANN401 - as JSON has it.
        return json.loads(await self.text(path, query))


WITH_CLASSIC, WITH_CONSUMERS = 0.5, 0.8
"""Parts of the lab after which groups have members, and one is rebalancing."""


@cache
def followed(part: float) -> tuple[Watcher, list[Json], Taken]:
    """Return a watcher of that part of the lab, its history, and what has changed in it."""
    watcher = new_watcher()
    watcher.changes.keeps_groups = watcher.changes.keeps_events = True
    history = follow_lab(watcher, polls=True, part=part)
    return watcher, history, watcher.changes.take()


@pytest_asyncio.fixture(name="lab", params=[WITH_CLASSIC, WITH_CONSUMERS])
async def make_lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    watcher, history, taken = followed(request.param)
    sources = Sources("the-cluster", lambda: positions(watcher), lambda: 7, lambda: None)
    site = WatchSite(sources, SystemClock(), InlineExecutor())
    news = News(
        records=list(map(encoded, history)),
        counted=list(map(from_json, history)),
        views={group: watcher.view(group) for group in taken.groups},
        running={group: running(watcher, group) for group in taken.groups},
        events=taken.events,
        removed=taken.removed,
    )
    await site.apply(news)
    yield Lab(site, watcher, history)
    await site.close()


def running(watcher: Watcher, group: str) -> bytes | None:
    record = watcher.running(group, 0)
    return None if record is None else text_of(record)


def positions(watcher: Watcher) -> Positions:
    by_group: dict[str, GroupOffsets] = {}
    readable: dict[tuple[str, int], Readable] = {}
    for commit in watcher.positions():
        by_group.setdefault(commit.group_id, GroupOffsets()).add(commit)
        offset = committed(commit.value)
        assert offset is not None
        readable[commit.partition] = Readable(0, offset.offset + BEHIND)
    return Positions(by_group, readable)


def rebalances_of(history: list[Json], group: str) -> list[Json]:
    return [one for one in history if one["group"] == group and one["kind"] == "rebalance"]


async def test_it_lists_the_groups_and_their_rebalances(lab: Lab) -> None:
    listed = {one["group"]: one for one in (await lab.json("/groups"))["groups"]}
    gone = {record["group"] for record in lab.history} - listed.keys()
    assert gone <= {DELETED}
    for group in gone:
        assert (await lab.ask(f"/groups/{group}")).status is HTTPStatus.NOT_FOUND
        assert (await lab.json(f"/groups/{group}/rebalances"))["rebalances"]
    for group, one in listed.items():
        assert one["rebalances"] == len(rebalances_of(lab.history, group))


async def test_the_members_are_those_of_the_last_rebalance(lab: Lab) -> None:
    seen = 0
    for listed in (await lab.json("/groups"))["groups"]:
        if listed["state"] != "Stable" or listed["group"] == UPGRADED:
            continue
        seen += 1
        group = listed["group"]
        shown = await lab.json(f"/groups/{group}")
        last = rebalances_of(lab.history, group)[-1]
        assert shown["generation"] == last["generation"]
        assert shown["member_count"] == last["members_after"]
        for member in shown["members"]:
            assert member["client_id"]
            assert member["assignment"] is not None
    assert seen > 10


async def test_a_rebalance_in_progress_is_shown_with_the_members_it_may_wait_for(lab: Lab) -> None:
    listed = (await lab.json("/groups"))["groups"]
    (group,) = [one for one in listed if one["state"] in {"PreparingRebalance", "Reconciling"}]
    waiting = group["waiting"]
    if group["state"] == "PreparingRebalance":
        assert waiting["phase"] == "join"
        assert waiting["any_of"]
        assert waiting["until_ms"] > waiting["since_ms"]
    else:
        assert waiting["phase"] in {"revoke", "tell", "give"}
        shown = await lab.json(f"/groups/{group['group']}/rebalances")
        assert shown["rebalances"][-1]["outcome"] == "running"
        assert shown["rebalances"][-1]["sentence"].startswith("has been rebalancing since")
        assert shown["total_rebalances"] == len(rebalances_of(lab.history, group["group"]))
    assert waiting["member_ids"]
    page = await lab.json(f"/api/groups/{group['group']}")
    assert page["waiting"]["text"].startswith("for ")
    assert page["last"]["sentence"]
    metrics = await lab.text("/metrics")
    assert 'kohort_rebalances_running{cluster="the-cluster"} 1\n' in metrics
    since = f'waiting_since_seconds{{cluster="the-cluster",consumergroup="{group["group"]}"}}'
    assert since in metrics


async def test_a_rebalance_is_told_as_the_watcher_concluded_it(lab: Lab) -> None:
    group = next(one["group"] for one in lab.history if one["trigger"]["certainty"] == "likely")
    shown = await lab.json(f"/groups/{group}/rebalances", "last=1000&kind=rebalance")
    expected = rebalances_of(lab.history, group)
    assert [one["trigger"] for one in shown["rebalances"]] == [one["trigger"] for one in expected]
    assert all(one["sentence"] for one in shown["rebalances"])
    assert shown["rebalances"][-1]["observed"] == expected[-1]["observed"]


async def test_the_metrics_count_causes_and_positions_under_the_cluster(lab: Lab) -> None:
    families = {one.name: one for one in text_string_to_metric_families(await lab.text("/metrics"))}
    samples = [sample for family in families.values() for sample in family.samples]
    assert {sample.labels["cluster"] for sample in samples} == {"the-cluster"}
    assert {
        f"{one.name}_total" if one.type == "counter" else one.name
        for one in families.values()
        if one.name.startswith(("kohort_", "kafka_"))
    } == NAMES

    def by(name: str, label: str) -> Counter[str]:
        values: Counter[str] = Counter()
        for sample in samples:
            if sample.name == name:
                values[sample.labels[label]] += int(sample.value)
        return values

    causes = Counter(one["trigger"]["kind"] for one in lab.history if one["kind"] == "rebalance")
    started = by("kohort_rebalances_started_total", "cause")
    assert causes <= started
    assert (started - causes).total() <= 1, "one may be running"
    unclear = [one["trigger"]["certainty"] == "unclear" for one in lab.history]
    assert by("kohort_watch_unclear_total", "cluster") == {"the-cluster": sum(unclear)}
    assert by("kohort_watch_lag_records", "cluster") == {"the-cluster": 7}
    moved = [one["partitions"]["moved"] for one in lab.history if one["kind"] == "rebalance"]
    assert by("kohort_consumergroup_partitions_moved_total", "cluster") == {
        "the-cluster": sum(moved)
    }
    assert {one.value for one in samples if one.name == "kafka_consumergroup_lag"} == {BEHIND}


async def test_the_console_has_the_pages_about_groups_alone(lab: Lab) -> None:
    page = await lab.text("/")
    assert 'href="#/groups"' in page
    assert "#/topics" not in page
    assert "#/broker" not in page
    for path in ("/api/topics", "/api/topics/t", "/api/broker", "/transactions", "/none"):
        assert (await lab.ask(path)).status is HTTPStatus.NOT_FOUND
    rows = {row["group"]: row for row in (await lab.json("/api/groups"))["groups"]}
    group = next(name for name, row in rows.items() if row["members"] and row["lag"])
    shown = await lab.json(f"/api/groups/{group}")
    assert shown["lag"] == BEHIND * shown["partition_count"]
    assert {member["partition_count"] for member in shown["members"]} != {0}
    number = shown["last"]["sequence"]
    assert (await lab.json(f"/api/groups/{group}/rebalances/{number}"))["sentence"]


async def test_open_pages_are_told_of_a_group_that_changes(lab: Lab) -> None:
    stream = await lab.answer("/events")
    assert not isinstance(stream, HttpResponse)
    await stream.wait_chunk()
    group = lab.history[0]["group"]
    await lab.site.apply(News([], [], {group: lab.watcher.view(group)}, {}, [], []))
    chunk = await stream.wait_chunk()
    assert chunk is not None
    assert group.encode() in chunk
    stream.close()


async def test_the_console_works_in_a_browser(lab: Lab, tmp_path: Path) -> None:
    rows = (await lab.json("/api/groups"))["groups"]
    group = next(row["group"] for row in rows if row["members"] and row["last"])
    sequence = (await lab.json(f"/api/groups/{group}"))["last"]["sequence"]
    await lab.server.start("127.0.0.1", 0)
    try:
        await asyncio.to_thread(visit, lab.server.port, group, sequence, tmp_path)
    finally:
        await lab.server.close()


def visit(port: int, group: str, sequence: int, directory: Path) -> None:
    """Look at every page. A script that fails, or asks for a page that does not exist, is noted."""
    pages = {
        "#/groups": group,
        f"#/groups/{group}": "Members",
        f"#/groups/{group}/timeline/{sequence}": f"Rebalance {sequence}",
        "#/checks": "Checks",
    }
    with Browser(directory) as browser:
        for address, text in pages.items():
            browser.open(f"http://127.0.0.1:{port}/{address}")
            browser.wait(f"document.getElementById('main').innerText.includes({json.dumps(text)})")
            assert browser.evaluate(TOPIC_LINK) is None
        assert browser.problems == []
