"""One run: a broker, those who work on it, what disturbs it, and the history that comes of it."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kohort.admin.cluster import CoordinatorKind
from tests.histories.anomalies import Anomaly
from tests.histories.broker import SteppedClock
from tests.histories.checker import check
from tests.histories.disturbances import CLOCK, EVERY, Disturber, Pace
from tests.histories.history import History
from tests.histories.links import Link, Links
from tests.histories.logs import ALL, COPIES, LISTS, PARTITIONS, WRITTEN, place_of
from tests.histories.producer import LATER, NEW, OLD, Producer
from tests.histories.workers import GROUP, Copier, Notes, Watcher, Worker, Writer
from tests.support import messages as m
from tests.support.brokers.forked_kohort import ForkedKohort
from tests.support.brokers.server_process import ServerProcess

WRITER_FLOWS: Final = (OLD, OLD, LATER, LATER, NEW, NEW, NEW, NEW)
COPIER_FLOWS: Final = (OLD, NEW, LATER, NEW)
IDS_OF_ONE: Final = 3
"""Transactional ids of each writer."""
PACE: Final = Pace(0.3, 2)
AT_WORK: Final = 30
"""Transactions that are over before the first disturbance."""
END_S: Final = 60
_LIST_OFFSETS: Final = 5
_CREATE_TOPICS: Final = 4
_FIND_COORDINATOR: Final = 3
_END: Final = -1
_EXISTS: Final = 36
_SETTINGS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "log.segment.bytes": str(1024 * 1024),
}


@dataclass(slots=True)
class Result:
    """What a run was, and what is wrong with it."""

    seed: str
    history: History
    anomalies: list[Anomaly]
    disturbances: Counter[str]
    refusals: Counter[str]
    errors: list[str] = field(default_factory=list)
    """Lines of the broker's log."""
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.outcomes.update(one.outcome.name for one in self.history.transactions)

    @property
    def operations(self) -> int:
        """Records sent, positions committed and polls answered."""
        moves = sum(one.move is not None for one in self.history.transactions)
        sends = sum(len(one.sends) for one in self.history.transactions)
        return moves + sends + len(self.history.polls)


def kohort(directory: Path, *, fault: str | None = None) -> tuple[ServerProcess, SteppedClock]:
    """A broker whose clock can be stepped; `fault` is one of `tests.histories.broker`."""
    directory.mkdir(parents=True, exist_ok=True)
    clock = SteppedClock(directory / "clock")
    arguments = ["--clock", str(clock.file), *(("--fault", fault) if fault else ())]
    server = ForkedKohort(
        directory, overrides=_SETTINGS, module="tests.histories.broker", arguments=arguments
    )
    return server, clock


def errors_told(server: ServerProcess) -> list[str]:
    """What a Kohort has written into its log about faults of its own."""
    lines = server.log_file.read_text(errors="replace").splitlines()
    return [line for line in lines if " ERROR " in line or " CRITICAL " in line]


def run(
    server: ServerProcess,
    clock: SteppedClock | None,
    *,
    seed: str,
    seconds: float,
    kinds: Sequence[str] = EVERY,
    pace: Pace = PACE,
    go_on: Callable[[Disturber], bool] = lambda _: True,
    end_s: float = END_S,
) -> Result:
    """Work on a broker that runs for so long, disturb it, and judge.

    Args:
        clock: the broker's; None if it cannot be stepped.
        go_on: asked after each disturbance.
        end_s: for those who read and copy to come to the end.
    """
    chance = random.Random(seed)
    links, notes = Links(server.port), Notes()
    _create_topics(links)
    _find_coordinators(links)
    ids = [f"id{number}" for number in range(len(WRITER_FLOWS) * IDS_OF_ONE)]
    writers, copiers, watchers = _workers(links, notes, chance, ids)
    everybody: list[Worker] = [*writers, *copiers, *watchers]
    copier_ids = [f"{one.name}.id" for one in copiers]
    disturber = Disturber(server, links, [*ids, *copier_ids], clock, chance)
    kinds = [kind for kind in kinds if kind != CLOCK or clock is not None]
    for worker in everybody:
        worker.start()
    try:
        _wait_at_work(notes.history, end_s)
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s and go_on(disturber):
            time.sleep(chance.uniform(*pace))
            disturber.disturb(kinds)
        _settle(links, notes.history, ids, writers, copiers, watchers, end_s)
    finally:
        for worker in everybody:
            worker.stop()
        for worker in everybody:
            worker.join()
    _read_again(server, links, notes, chance, end_s)
    history = notes.history
    disturber.done["second owner at work"] += sum(writer.twins for writer in writers)
    return Result(seed, history, check(history), disturber.done, links.refusals)


def _workers(
    links: Links, notes: Notes, chance: random.Random, ids: Sequence[str]
) -> tuple[list[Writer], list[Copier], list[Watcher]]:
    def own() -> random.Random:
        return random.Random(chance.random())

    writers = [
        Writer(
            f"writer{number}",
            links,
            notes,
            own(),
            flow=flow,
            own_ids=ids[number * IDS_OF_ONE : (number + 1) * IDS_OF_ONE],
            all_ids=ids,
        )
        for number, flow in enumerate(WRITER_FLOWS)
    ]
    copiers = [
        Copier(f"copier{log}", links, notes, own(), flow=COPIER_FLOWS[log], log=log)
        for log in WRITTEN
    ]
    watchers = [
        Watcher(f"watcher{number}", links, notes, own(), is_committed=number % 2 == 0)
        for number in range(4)
    ]
    return writers, copiers, watchers


def _wait_at_work(history: History, timeout_s: float) -> None:
    """A busy machine takes its time; what is disturbed before is nothing."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s and len(history.transactions) < AT_WORK:
        time.sleep(0.01)


def _settle(
    links: Links,
    history: History,
    ids: Sequence[str],
    writers: Sequence[Writer],
    copiers: Sequence[Copier],
    watchers: Sequence[Watcher],
    end_s: float,
) -> None:
    """Until nothing is undecided, everything is copied, and everything is read."""
    for writer in writers:
        writer.stop()
    for writer in writers:
        writer.join()
    for transactional_id in ids:
        Producer(links, transactional_id, NEW, timeout_ms=60_000).close()
    ends = _ends(links)
    for copier in copiers:
        copier.drain(ends[copier.log])
    deadline_s = time.monotonic() + end_s
    while time.monotonic() < deadline_s and any(copier.is_alive for copier in copiers):
        time.sleep(0.02)
    for copier in copiers:
        copier.stop()
        copier.join()
        copier.note_position()
    history.ends = _ends(links)
    for watcher in watchers:
        watcher.wait_at(history.ends, end_s)
    history.lasting = frozenset(watcher.name for watcher in watchers)


def _read_again(
    server: ServerProcess, links: Links, notes: Notes, chance: random.Random, end_s: float
) -> None:
    """All from the start, by what is in memory, and by what a broker that was killed has kept."""
    names = []
    for when in ("at the end", "after a kill"):
        if when == "after a kill":
            server.kill()
            server.start()
        for is_committed in (True, False):
            level = "committed" if is_committed else "uncommitted"
            name = f"reader of what is {level} {when}"
            names.append(name)
            watcher = Watcher(name, links, notes, chance, is_committed=is_committed)
            watcher.start()
            watcher.wait_at(notes.history.ends, end_s)
            watcher.stop()
            watcher.join()
    notes.history.lasting |= frozenset(names)


def _create_topics(links: Links) -> None:
    topics = [
        m.CreatableTopic(
            name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        for name in (LISTS, COPIES)
    ]
    request = m.CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    with contextlib.closing(Link(links)) as link:
        link.insist(request, _CREATE_TOPICS, _code_of_creation)


def _find_coordinators(links: Links) -> None:
    """A Kafka makes their topics when it is asked where they are."""
    with contextlib.closing(Link(links)) as link:
        for kind in CoordinatorKind:
            request = m.FindCoordinatorRequest(key=GROUP, key_type=kind)
            link.insist(request, _FIND_COORDINATOR, lambda answer: int(answer.error_code))


def _code_of_creation(answer: object) -> int:
    codes = {topic.error_code for topic in answer.topics} - {_EXISTS}  # type: ignore[attr-defined]
    return int(max(codes, default=0))


def _ends(links: Links) -> dict[int, int]:
    """High watermarks."""
    topics: dict[str, list[m.ListOffsetsPartition]] = {}
    for log in ALL:
        topic, index = place_of(log)
        asked = m.ListOffsetsPartition(partition_index=index, timestamp=_END)
        topics.setdefault(topic, []).append(asked)
    request = m.ListOffsetsRequest(
        replica_id=-1,
        topics=[m.ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )
    with contextlib.closing(Link(links)) as link:
        answer, _ = link.insist(
            request,
            _LIST_OFFSETS,
            lambda answer: max(
                one.error_code for topic in answer.topics for one in topic.partitions
            ),
        )
    found = {
        (topic.name, one.partition_index): one.offset
        for topic in answer.topics
        for one in topic.partitions
    }
    return {log: found[place_of(log)] for log in ALL}
