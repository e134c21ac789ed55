"""`kohort groups` as its users run it, beside a broker process and real consumers."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from kohort.groups.history.wording import short_id
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess, free_port
from tests.support.network.wire import RawClient
from tests.support.processes.commands import Said, said_by_process, said_here
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
TOPIC = "orders"
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"


def kohort_groups(*arguments: str, **environment: str) -> Said[str]:
    return said_by_process("groups", *arguments, **environment)


@pytest.fixture
def groups_here(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said[str]]:
    """The same in this process, for tests without a loop."""

    def run(*arguments: str, **environment: str) -> Said[str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return said_here(capfd, "groups", *arguments)

    return run


class Asking:
    """The commands, told where a broker is."""

    def __init__(self, server: ServerProcess, http_port: int) -> None:
        self.server = server
        self.http = f"http://127.0.0.1:{http_port}"

    async def ask(self, command: str, *arguments: str, **environment: str) -> Said[str]:
        over_kafka = command in {"list", "describe"}
        where = (
            ["--bootstrap-server", self.server.bootstrap] if over_kafka else ["--http", self.http]
        )
        given = (command, "--timeout", "100", *arguments, *where)
        return await asyncio.to_thread(kohort_groups, *given, **environment)

    async def page(self, group: str) -> dict[str, Any]:
        """What the broker's page tells of the group's rebalances; the commands show it in words."""
        url = f"{self.http}/groups/{group}/rebalances?last=1000&kind=rebalance"

        def fetch() -> dict[str, Any]:
            try:
                with urlopen(url, timeout=60) as answer:
                    found: dict[str, Any] = json.load(answer)
            except HTTPError as error:
                error.close()
                return {"rebalances": [], "waiting": None}
            return found

        return await asyncio.to_thread(fetch)

    async def until_rebalances(self, group: str, count: int) -> list[dict[str, Any]]:
        """All records, once there are so many that are complete; a hang ends with the test."""
        while True:
            records: list[dict[str, Any]] = (await self.page(group))["rebalances"]
            if len([one for one in records if one["outcome"] != "running"]) >= count:
                return records
            await asyncio.sleep(0.05)

    async def until_waiting(self, group: str) -> dict[str, Any]:
        """The whole answer, once a rebalance of the group waits for somebody."""
        while True:
            if (found := await self.page(group))["waiting"]:
                return found
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def http_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def kohort(tmp_path_factory: pytest.TempPathFactory, http_port: int) -> Iterator[Asking]:
    settings = {
        "kohort.metrics.port": str(http_port),
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
    }
    with KohortServer(tmp_path_factory.mktemp("groups"), overrides=settings) as server:
        asyncio.run(create_topic(server.bootstrap))
        yield Asking(server, http_port)


async def create_topic(bootstrap: str) -> None:
    """Six partitions with five records each."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 6, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number in range(30):
        await producer.send_and_wait(TOPIC, b"%d" % number, partition=number % 6)
    await producer.stop()


@asynccontextmanager
async def consuming(bootstrap: str, group: str, name: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=name,
        heartbeat_interval_ms=100,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


def join(
    client: RawClient,
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    session_timeout_ms: int = 30_000,
) -> m.JoinGroupResponse:
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    return client.call(request, 9, m.JoinGroupResponse)


def sync(
    client: RawClient, group: str, joined: m.JoinGroupResponse, instance: str, *others: str
) -> None:
    """Fetch the assignment; a leader gives one to itself and to `others`, by their member ids."""
    given = (joined.member_id, *others) if joined.leader == joined.member_id else ()
    request = m.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[m.SyncGroupRequestAssignment(member_id=one, assignment=b"") for one in given],
    )
    assert client.call(request, 5, m.SyncGroupResponse).error_code == 0


def settle(
    client: RawClient, group: str, instance: str, *, session_timeout_ms: int = 30_000
) -> str:
    """Make a group of one static member, which then never says another word."""
    joined = join(client, group, instance=instance, session_timeout_ms=session_timeout_ms)
    sync(client, group, joined, instance)
    return joined.member_id


def sentences(said: Said[str], group: str) -> list[str]:
    """The sentences on rebalances, without the summary of several."""
    return [
        line for line in said.out.splitlines() if line.startswith(f"Group {group} rebalanced at")
    ]


async def test_why_names_who_joined_and_who_left_in_one_sentence(
    kohort: Asking, tmp_path: Path
) -> None:
    async with consuming(kohort.server.bootstrap, "readers", "first"):
        async with consuming(kohort.server.bootstrap, "readers", "second") as second:
            await until(lambda: len(second.assignment()) == 3)
            records = await kohort.until_rebalances("readers", 2)
            joined = await kohort.ask("why", "readers")
        await kohort.until_rebalances("readers", 3)
        left = await kohort.ask("why", "readers")
        both = await kohort.ask("why", "readers", "--last", "2")
        advised = await kohort.ask("advise", "readers")
        page = tmp_path / "page.html"
        reported = await kohort.ask("report", "readers", "--output", str(page))
    newcomer = records[1]["trigger"]["member_id"]
    (sentence,), evidence = sentences(joined, "readers"), joined.out.splitlines()
    assert re.fullmatch(
        r"Group readers rebalanced at \d\d:\d\d:\d\d, generation 1 -> 2, because "
        rf"member {short_id(newcomer)} \(host 127\.0\.0\.1\) joined; .*\.",
        sentence,
    )
    assert newcomer.startswith("second-")
    assert "  the broker saw: member_added" in evidence
    assert "  partitions: 3 kept, 3 moved, 3 gained, 3 given up" in evidence
    assert f"generation 2 -> 3, because member {short_id(newcomer)} (host" in left.out
    assert sentences(both, "readers") == [sentence, *sentences(left, "readers")]
    assert advised.code == 0, advised.err
    assert re.search(r"^Group readers, 3 rebalances in .*No recommendation", advised.out)
    assert reported.code == 0, reported.err
    told = page.read_text(encoding="utf-8")
    assert "Why readers rebalanced, and what to change" in told
    assert f"because member {short_id(newcomer)} (host 127.0.0.1) left" in told


async def test_the_kafka_port_tells_what_the_http_port_does(kohort: Asking) -> None:
    with RawClient(kohort.server.port) as client:
        settle(client, "elsewhere", "pod-3")
    with RawClient(kohort.server.port) as client:
        assert join(client, "elsewhere", instance="pod-3").generation_id == 1
        # Others' records lie between those that are looked for.
        for number in range(5):
            settle(client, f"between-{number}", "pod-1")
        settle(client, "elsewhere", "pod-3")
    port = ["--http", "none", "--bootstrap-server", kohort.server.bootstrap]

    async def stored(command: str, *arguments: str) -> Said[str]:
        given = (command, "elsewhere", "--timeout", "100", *arguments, *port)
        return await asyncio.to_thread(kohort_groups, *given)

    while True:
        over_http = await kohort.page("elsewhere")
        over_kafka = (await stored("why", "--last", "9", "--json")).json
        over_kafka["rebalances"] = [
            one for one in over_kafka["rebalances"] if one["kind"] == "rebalance"
        ]
        sequences = [one["sequence"] for one in over_http["rebalances"]]
        if [one["sequence"] for one in over_kafka["rebalances"]] == sequences and all(
            one["outcome"] == "stable" for one in over_kafka["rebalances"]
        ):
            break
        await asyncio.sleep(0.1)
    assert len(sequences) >= 1
    for here, there in zip(over_kafka["rebalances"], over_http["rebalances"], strict=True):
        there.pop("sentence")
        here.pop("stored_at_ms")
        assert here == there
    for command in ("why", "timeline"):
        # What is stored may be followed by as of when.
        shown = (await kohort.ask(command, "elsewhere")).out
        assert (await stored(command)).out.startswith(shown)
    avoided = await stored("why", "--avoided", "--last", "5")
    assert "Group elsewhere did not rebalance" in avoided.out
    missing = await asyncio.to_thread(kohort_groups, "why", "nobody", *port)
    assert missing.code == 1


async def test_why_names_the_static_member_whose_session_ended(kohort: Asking) -> None:
    with RawClient(kohort.server.port) as client:
        member_id = settle(client, "silent", "pod-7", session_timeout_ms=1_000)
        await kohort.until_rebalances("silent", 2)
    said = await kohort.ask("why", "silent")
    assert said.code == 0
    assert (
        f"because member {short_id(member_id)} (static id pod-7, host 127.0.0.1) "
        "missed its session timeout of 1 s; the group is empty." in sentences(said, "silent")[0]
    )


async def test_why_tells_of_a_consumer_that_asked_for_an_unknown_assignor(kohort: Asking) -> None:
    def beat(client: RawClient, member_id: str, assignor: str) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="picky",
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            server_assignor=assignor,
            topic_partitions=[],
        )
        client.ask(request, 1)

    with RawClient(kohort.server.port) as client:
        beat(client, "good", "range")
        beat(client, "bad", "nonsense")
        while True:
            said = await kohort.ask("why", "picky")
            if "had a problem" in said.out:
                break
    assert "(UNSUPPORTED_ASSIGNOR): it wants the assignor nonsense" in said.out


async def test_why_tells_of_a_static_restart_that_needed_no_rebalance(kohort: Asking) -> None:
    with RawClient(kohort.server.port) as client:
        settle(client, "steady", "pod-1")
    with RawClient(kohort.server.port) as restarted:
        assert join(restarted, "steady", instance="pod-1").generation_id == 1
        assert join(restarted, "steady", instance="pod-1").generation_id == 1
    newest = await kohort.ask("why", "steady", "--last", "5")
    said = await kohort.ask("why", "steady", "--last", "5", "--avoided")
    assert newest.out.count("Group steady did not rebalance") == 1
    assert said.out.count("Group steady did not rebalance") == 2
    assert "generation 1 stays, although member pod-1-" in newest.out


async def test_while_a_rebalance_hangs_why_says_who_is_missing_since_when_and_until_when(
    kohort: Asking,
) -> None:
    with RawClient(kohort.server.port) as client, RawClient(kohort.server.port) as newcomer:
        silent = settle(client, "hanging", "pod-1")
        joining = asyncio.create_task(
            asyncio.to_thread(join, newcomer, "hanging", instance="pod-2")
        )
        found = await kohort.until_waiting("hanging")
        said = await kohort.ask("why", "hanging")
        drawn = await kohort.ask("timeline", "hanging")
        # The Kafka port is enough to find the HTTP port, the only one that shows what is awaited.
        port = ("-b", kohort.server.bootstrap, "--json")
        through_kafka = await asyncio.to_thread(kohort_groups, "why", "hanging", *port)
        # The one that is missing comes, and the newcomer gets its answer.
        join(client, "hanging", silent, instance="pod-1")
        await joining
    assert found["waiting"]["member_ids"] == [silent]
    assert through_kafka.json["waiting"]["member_ids"] == [silent]
    assert "Group hanging has been rebalancing since " in said.out
    expected = (
        rf"Right now it waits for member {short_id(silent)} \(static id pod-1, "
        r"host 127\.0\.0\.1\) to join again, since \d\d:\d\d:\d\d "
        r"\(.+\), until \d\d:\d\d:\d\d at the latest \(.+ left\)\."
    )
    for out in (said.out, drawn.out):
        # The timeline breaks lines at its width.
        assert re.search(expected, " ".join(out.split())), out


async def test_timeline_draws_a_line_for_each_member_without_a_terminal(kohort: Asking) -> None:
    with RawClient(kohort.server.port) as client, RawClient(kohort.server.port) as newcomer:
        leader = settle(client, "drawn", "first")
        joining = asyncio.create_task(asyncio.to_thread(join, newcomer, "drawn", instance="second"))
        await kohort.until_waiting("drawn")
        told = m.HeartbeatRequest(
            group_id="drawn", generation_id=1, member_id=leader, group_instance_id="first"
        )
        answer = client.call(told, 4, m.HeartbeatResponse)
        assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        # Another command takes its time, so that what both wait for can be seen.
        await kohort.until_waiting("drawn")
        again = join(client, "drawn", leader, instance="first")
        joined = await joining
        # Less than a millisecond would count as no stop.
        await asyncio.sleep(0.02)
        sync(client, "drawn", again, "first", joined.member_id)
        sync(newcomer, "drawn", joined, "second")
        await kohort.until_rebalances("drawn", 2)
        said = await kohort.ask("timeline", "drawn", PYTHONIOENCODING="utf-8")
        plain = await kohort.ask(
            "timeline", "drawn", "--members", "1", PYTHONIOENCODING="ascii", COLUMNS="80"
        )
        why = await kohort.ask("why", "drawn")
    lines = said.out.splitlines()
    # It has no terminal, but breaks lines at the width of its drawing.
    assert sentences(why, "drawn")[0].startswith(sentences(said, "drawn")[0])
    (first,) = [line for line in lines if line.startswith("first ")]
    (second,) = [line for line in lines if line.startswith("second ")]
    assert "▒" in second
    assert "new, waited" in second
    assert re.search(r"\*  [─░▒▓]+  stopped \d", first)
    assert "\x1b" not in said.out
    assert plain.out.isascii()
    assert "and 1 more; 1 member stopped" in plain.out, plain.out
    assert [line for line in plain.out.splitlines()[1:4] if len(line) > 80] == []


async def test_a_group_of_any_name_can_be_asked_about(kohort: Asking) -> None:
    name = "a/b %41 ü?x#y"
    with RawClient(kohort.server.port) as client:
        settle(client, name, "pod")
    assert (await kohort.ask("why", name)).out.startswith(f"Group {name} rebalanced")
    assert (await kohort.ask("describe", name)).out.startswith(f"{name}: Stable")


async def test_a_group_that_only_keeps_offsets_has_nothing_to_explain(kohort: Asking) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kohort.server.bootstrap, group_id="offsets", enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([TopicPartition(TOPIC, 0)])
    await consumer.commit({TopicPartition(TOPIC, 0): 1})
    await consumer.stop()
    why, drawn = await kohort.ask("why", "offsets"), await kohort.ask("timeline", "offsets")
    assert why == drawn
    assert (why.code, why.out) == (
        0,
        "Group offsets has not rebalanced, as far as its history goes back.\n",
    )


@pytest.mark.parametrize("command", ["describe", "why", "timeline"])
async def test_a_group_that_is_not_there_ends_with_1(kohort: Asking, command: str) -> None:
    said = await kohort.ask(command, "nobody")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("kohort: there is no group 'nobody'")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["why"],
        ["why", "g", "--last", "0"],
        ["why", "g", "--http", "ftp://localhost:9308"],
        ["list", "--bootstrap-server", "localhost:port"],
        ["list", "--timeout", "-1"],
    ],
)
def test_a_command_line_that_cannot_be_meant_ends_with_2(
    groups_here: Callable[..., Said[str]], arguments: list[str]
) -> None:
    said = groups_here(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err


def test_without_an_answer_it_ends_with_3_and_says_what_to_look_at(
    groups_here: Callable[..., Said[str]],
) -> None:
    port = free_port()
    over_http = groups_here("why", "g", "--http", f"http://127.0.0.1:{port}")
    over_kafka = groups_here("list", "--bootstrap-server", f"127.0.0.1:{port}")
    assert (over_http.code, over_kafka.code) == (3, 3)
    assert f"no response from http://127.0.0.1:{port}" in over_http.err
    assert "kohort.metrics.port" in over_http.err
    assert f"127.0.0.1:{port} cannot be reached" in over_kafka.err
    assert "Is the broker running? --bootstrap-server" in over_kafka.err


def test_the_environment_names_the_broker_of_all_commands_unless_options_do(
    kohort: Asking, http_port: int, groups_here: Callable[..., Said[str]]
) -> None:
    assert groups_here("list", KOHORT_BOOTSTRAP_SERVER=kohort.server.bootstrap).code == 0
    nowhere = f"127.0.0.1:{free_port()}"
    for command in (["list"], ["why", "nobody"]):
        said = groups_here(*command, KOHORT_BOOTSTRAP_SERVER=nowhere)
        assert said.code == 3
        assert f"{nowhere} cannot be reached" in said.err
    # An address without a scheme is that of a web server.
    http = ("--http", f"127.0.0.1:{http_port}")
    said = groups_here("why", "nobody", *http, KOHORT_BOOTSTRAP_SERVER=nowhere)
    assert (said.code, said.err.split(",")[0]) == (1, "kohort: there is no group 'nobody'")


def test_a_port_of_the_other_kind_is_told_apart(
    kohort: Asking, http_port: int, groups_here: Callable[..., Said[str]]
) -> None:
    wrong_way = groups_here("why", "g", "--http", f"http://{kohort.server.bootstrap}")
    other_way = groups_here("list", "--bootstrap-server", f"127.0.0.1:{http_port}")
    assert (wrong_way.code, other_way.code) == (3, 3)
    assert "this is a web server, not a broker" in other_way.err
    assert "Is the broker running" not in other_way.err


async def test_without_rich_the_timeline_says_what_to_install_and_json_still_works(
    kohort: Asking,
) -> None:
    script = (
        "import sys; sys.modules['rich.console'] = None; from kohort.cli import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    with RawClient(kohort.server.port) as client:
        settle(client, "plain", "pod")
    command = [sys.executable, "-c", script, "groups", "timeline", "plain", "--http", kohort.http]

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options], check=False, cwd=ROOT, capture_output=True, text=True
        )

    without = await asyncio.to_thread(run)
    assert (without.returncode, without.stdout) == (3, "")
    assert "pip install rich" in without.stderr
    as_json = await asyncio.to_thread(run, "--json")
    assert json.loads(as_json.stdout)["group"] == "plain"


@pytest.mark.long
async def test_why_tells_of_a_member_whose_poll_loop_hung(kohort: Asking) -> None:
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=kohort.server.bootstrap,
        group_id="hung",
        client_id="hung",
        heartbeat_interval_ms=300,
        auto_offset_reset="earliest",
        max_poll_interval_ms=14_000,
    )
    await consumer.start()
    await consumer.getone()
    # What was read ahead is not taken, so there is nothing to fetch.
    await kohort.until_rebalances("hung", 2)
    said = await kohort.ask("why", "hung")
    await consumer.stop()
    assert re.search(r"left, having sent heartbeats for 1\d(\.\d)? s without a Fetch", said.out)
