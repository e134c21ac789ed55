"""Groups of our consumer, Java's and librdkafka's: whichever leads, all of them understand."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.interop.consumer.members import Topics
from tests.interop.streams import Stream, check_order, streaming, wait_until_all_read
from tests.support.clients.confluent_client import ConfluentClient, ConfluentMember
from tests.support.clients.java_client import JavaMember
from tests.support.clients.kohort_client import KohortMember
from tests.support.clients.model import Member, Seat
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

PARTITIONS = 7
LIBRARIES = ("kohort", "java", "confluent", "kohort")
Join = Callable[[str, Seat], Member]
"""A member of that library, in the group and topic of the test."""


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create(PARTITIONS)


@pytest.fixture
def join(bootstrap: str, group: str, topic: str, java_clients: JavaProcess) -> Iterator[Join]:
    """Lets members join, and has those leave that are left at the end."""
    with ExitStack() as stack:

        def join(library: str, seat: Seat) -> Member:
            member: Member
            match library:
                case "kohort":
                    member = KohortMember(bootstrap, group, topic, seat)
                case "java":
                    member = JavaMember(java_clients, bootstrap, group, topic, seat)
                case _:
                    member = ConfluentMember(bootstrap, group, topic, seat)
            return stack.enter_context(member)

        yield join


class Clients:
    """One member of each library and a second one of ours; the first one leads."""

    def __init__(self, join: Join, libraries: tuple[str, ...], strategy: str) -> None:
        self._join = join
        self._libraries = libraries
        self._strategy = strategy
        self.now: list[Member] = []
        self.ever: list[Member] = []
        for number in range(len(libraries)):
            self._start(number)
            self.wait_shared(self.now)

    def bounce(self) -> None:
        """Each of them stops and comes back, one after the other."""
        for number in range(len(self._libraries)):
            leaver = self.now.pop(number)
            leaver.leave()
            self.wait_shared(self.now)
            self._start(number)
            self.wait_shared(self.now)

    def _start(self, number: int) -> None:
        library = self._libraries[number]
        seat = Seat(client_id=f"{number}-{library}", strategy=self._strategy)
        self.now.insert(number, self._join(library, seat))
        self.ever.append(self.now[number])

    def wait_shared(self, members: list[Member]) -> None:
        """Until each partition has one owner, and everybody has as many as anybody else."""

        def is_so() -> bool:
            held = [member.assigned() for member in members]
            sizes = [len(one) for one in held]
            return (
                sum(sizes) == PARTITIONS
                and set().union(*held) == set(range(PARTITIONS))
                and max(sizes) - min(sizes) <= 1
            )

        wait_until(
            is_so, lambda: f"shared: {[member.assigned() for member in members]}", timeout_s=120
        )


def check_each_read_once(stream: Stream, members: list[Member]) -> None:
    """Everybody commits before giving something up, so that nothing is read twice."""
    stream.stop()
    wait_until_all_read(stream, members)
    read = Counter(record.value for member in members for record in member.records())
    lost = [value for value in stream.sent if not read[value]]
    twice = [value for value, count in read.items() if count > 1]
    assert (lost, twice) == ([], [])
    for member in members:
        check_order(member.records())


def combinations() -> Iterator[object]:
    """Every strategy with a leader of every library."""
    short = {("range", "java")}
    for strategy in ("range", "roundrobin", "cooperative-sticky"):
        for leader in ("kohort", "java", "confluent"):
            marks = () if (strategy, leader) in short else pytest.mark.long
            yield pytest.param(strategy, leader, marks=marks)


@pytest.mark.parametrize(("strategy", "leader"), list(combinations()))
def test_members_of_all_libraries_share_what_there_is_and_each_may_be_restarted(
    strategy: str, leader: str, bootstrap: str, topic: str, join: Join
) -> None:
    first = LIBRARIES.index(leader)
    libraries = LIBRARIES[first:] + LIBRARIES[:first]
    with streaming(ConfluentClient(bootstrap), topic, PARTITIONS) as stream:
        crew = Clients(join, libraries, strategy)
        leads = [one.leads for one in crew.now if isinstance(one, KohortMember)]
        assert leads == [leader == "kohort", False]
        crew.bounce()
        check_each_read_once(stream, crew.ever)
