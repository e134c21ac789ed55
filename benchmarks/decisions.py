"""Decisions of the authorizer among as many access rules as there may be: the time of each.

Most questions are asked once in a round, so few answers are remembered; and every answer is
compared with the one that follows from how the rules were made. Of several rounds of 10,000
questions, between which all that is remembered is dropped, the fastest counts.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.harness import Bench, Measured, Row
from benchmarks.in_process import broker_here, run_apart
from benchmarks.rule_changes import measure_over_the_wire
from kohort.broker.core.security.acls import (
    EVERYBODY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    RuleFilter,
)
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.core.security.session import USER, Principal, Session
from kohort.broker.security.rules import AccessRules, property_of
from kohort.broker.storage.metadata.store import MetadataStore

TITLE: Final = "Decisions of the authorizer"

LIMIT_US: Final = 10.0
"""For 99 of 100 decisions."""

_RULES: Final = 100_000
_USERS: Final = 1_000
_LENGTHS: Final = 22
_LONG: Final = 32_000
_LONG_RULES: Final = 1_000
_OF_ONE_NAME: Final = 10_000
_QUESTIONS: Final = 10_000
_ROUNDS: Final = 5
_CHANGES_PER_S: Final = 100
_CHANGING_S: Final = 5.0
_TURN: Final = 200
"""Decisions between two looks at what else the loop has to do."""
_PAUSE_S: Final = 0.001
"""What the loop waits then, as a broker's waits for its sockets. One that never waits takes the
interpreter back before the thread that stores a change has noticed that it is free: a change took
seconds so, and there were none to decide beside. `rule_changes` has a broker without a pause."""

_TOPIC: Final = ResourceType.TOPIC
_READ: Final = Operation.READ
_LITERAL: Final = PatternType.LITERAL
_PREFIXED: Final = PatternType.PREFIXED


class Question(NamedTuple):
    session: Session
    name: str
    is_allowed: bool


Ask = Callable[[random.Random], Question]


class Scene(NamedTuple):
    """Rules, and questions whose answers follow from how they were made."""

    rules: list[Rule]
    ask: Ask


def measure(bench: Bench) -> Iterable[Row]:
    scale = bench.scaled(1.0, 0.0)
    names = list(_scenes(scale))
    figures = bench.measure_ours(lambda: _measure_scenes(scale))
    for name in names:
        yield Row(f"{name}: p50", "us", figures[f"{name}: p50"])
        yield Row(f"{name}: p99", "us", figures[f"{name}: p99"], limit=LIMIT_US)
    runs = iter(range(bench.runs))
    figures = bench.measure_ours(
        lambda: run_apart(
            partial(_measure_changing, scale=scale), bench.directory / f"decisions-{next(runs)}"
        )
    )
    text = "rules changed 100 times a second meanwhile, and stored"
    yield Row(f"{text}: p50", "us", figures["p50"])
    yield Row(f"{text}: p99", "us", figures["p99"], limit=LIMIT_US)
    yield Row(f"{text}: changes that were acknowledged", "per s", figures["changes"], "more")
    count, users = _sizes(scale)
    sessions = [_session(f"u{number}") for number in range(users)]
    # Two less than there may be: one that comes and goes, and the administrator's.
    yield from measure_over_the_wire(bench, _prefixed(sessions, count - 2).rules)


def _scenes(scale: float) -> dict[str, Callable[[], Scene]]:
    count, users = _sizes(scale)
    long = max(3, int(_LONG_RULES * scale))
    sessions = [_session(f"u{number}") for number in range(users)]
    return {
        "100,000 literal rules of 1,000 users": partial(_literal, sessions, count),
        "100,000 prefixes of 22 lengths": partial(_prefixed, sessions, count),
        "100,000 prefixes, 22 of them within each other": partial(_nested, sessions, count, 0),
        "the same, and one in 100 denies": partial(_nested, sessions, count, 100),
        "10,000 rules on one name": partial(_of_one_name, sessions),
        "1,000 names of 32 kB": partial(_long, sessions, long, _LITERAL),
        "1,000 prefixes of 32 kB": partial(_long, sessions, long, _PREFIXED),
    }


def _sizes(scale: float) -> tuple[int, int]:
    """Rules and users."""
    return max(60, int(_RULES * scale)), max(3, int(_USERS * scale))


def _session(user: str, host: str = "10.0.0.1") -> Session:
    return Session(Principal(USER, user), host, "PLAINTEXT")


def _rule(
    name: str,
    pattern: PatternType,
    principal: str,
    *,
    host: str = WILDCARD,
    permission: Permission = Permission.ALLOW,
) -> Rule:
    return Rule(_TOPIC, name, pattern, principal, host, _READ, permission)


def _one_of_two(chance: random.Random, sessions: list[Session], owner: int) -> tuple[Session, bool]:
    """The owner of a rule, or somebody else, and whether it is the owner."""
    if chance.random() < 0.5:
        return sessions[owner], True
    other = (owner + chance.randrange(1, len(sessions))) % len(sessions)
    return sessions[other], False


def _literal(sessions: list[Session], count: int) -> Scene:
    def ask(chance: random.Random) -> Question:
        number = chance.randrange(count)
        session, is_owner = _one_of_two(chance, sessions, number % len(sessions))
        return Question(session, f"topic-{number}", is_owner)

    rules = (
        _rule(f"topic-{number}", _LITERAL, _owner(sessions, number)) for number in range(count)
    )
    return Scene(list(rules), ask)


def _owner(sessions: list[Session], number: int) -> str:
    return str(sessions[number % len(sessions)].principal)


def _prefixed(sessions: list[Session], count: int) -> Scene:
    def prefix(number: int) -> str:
        return f"tenant-{number}.".ljust(13 + number % _LENGTHS, "-")

    def ask(chance: random.Random) -> Question:
        number = chance.randrange(count)
        session, is_owner = _one_of_two(chance, sessions, number % len(sessions))
        return Question(session, f"{prefix(number)}{chance.randrange(1 << 30)}", is_owner)

    rules = (_rule(prefix(number), _PREFIXED, _owner(sessions, number)) for number in range(count))
    return Scene(list(rules), ask)


def _nested(sessions: list[Session], count: int, denying: int) -> Scene:
    """Names that begin with 22 prefixes each; one in `denying` of the shortest denies."""
    tenants = count // _LENGTHS

    def is_denied(tenant: int) -> bool:
        return denying > 0 and tenant % denying == 0

    def rules() -> Iterator[Rule]:
        for tenant in range(tenants):
            owner, name = _owner(sessions, tenant), f"{tenant:04}{'x' * _LENGTHS}"
            for end in range(5, 5 + _LENGTHS):
                denies = end == 5 and is_denied(tenant)
                permission = Permission.DENY if denies else Permission.ALLOW
                yield _rule(name[:end], _PREFIXED, owner, permission=permission)

    def ask(chance: random.Random) -> Question:
        tenant = chance.randrange(tenants)
        session, is_owner = _one_of_two(chance, sessions, tenant % len(sessions))
        name = f"{tenant:04}{'x' * _LENGTHS}{chance.randrange(1 << 30)}"
        return Question(session, name, is_owner and not is_denied(tenant))

    return Scene(list(rules()), ask)


def _of_one_name(sessions: list[Session]) -> Scene:
    """Half of them for everybody, from a host each; the others of a user and a host each."""
    half = _OF_ONE_NAME // 2
    hosts = [f"10.{number >> 8}.{number & 255}.1" for number in range(half)]
    rules = [_rule("one", _LITERAL, EVERYBODY, host=host) for host in hosts]
    rules += [
        _rule("one", _LITERAL, _owner(sessions, number), host=f"11.0.{number >> 8}.{number & 255}")
        for number in range(half)
    ]

    def ask(chance: random.Random) -> Question:
        user = sessions[chance.randrange(len(sessions))]
        is_allowed = chance.random() < 0.5
        host = chance.choice(hosts) if is_allowed else f"12.0.0.{chance.randrange(256)}"
        return Question(user._replace(host=host), "one", is_allowed)

    return Scene(rules, ask)


def _long(sessions: list[Session], count: int, pattern: PatternType) -> Scene:
    """Names that differ at their end, so that each is read to its end."""
    start = "n" * _LONG

    def ask(chance: random.Random) -> Question:
        number = chance.randrange(count)
        session, is_owner = _one_of_two(chance, sessions, number % len(sessions))
        # A new text each time: what Python knows of one that was asked about would be left out.
        name = f"{start}{number:05}{'x' if pattern is _PREFIXED else ''}"
        return Question(session, name, is_owner)

    rules = (
        _rule(f"{start}{number:05}", pattern, _owner(sessions, number)) for number in range(count)
    )
    return Scene(list(rules), ask)


def _measure_scenes(scale: float) -> Measured:
    measured: dict[str, float] = {}
    questions = max(100, int(_QUESTIONS * scale))
    for name, make in _scenes(scale).items():
        rules, ask = make()
        authorizer = Authorizer(rules=rules)
        rounds = [_round(authorizer, ask, seed, questions) for seed in range(_ROUNDS)]
        measured[f"{name}: p50"] = min(half for half, _ in rounds)
        measured[f"{name}: p99"] = min(most for _, most in rounds)
    return measured


def _round(authorizer: Authorizer, ask: Ask, seed: int, count: int) -> tuple[float, float]:
    authorizer.change()
    chance = random.Random(seed)
    # What is sorted after a change is sorted by the first decision that needs it.
    _decide(authorizer, ask(chance))
    return _shares([_decide(authorizer, ask(chance)) for _ in range(count)])


def _decide(authorizer: Authorizer, question: Question) -> int:
    """The nanoseconds that the answer took."""
    session, name, is_allowed = question
    began_ns = time.perf_counter_ns()
    answer = authorizer.allows(session, _READ, _TOPIC, name)
    took_ns = time.perf_counter_ns() - began_ns
    if answer is not is_allowed:
        raise RuntimeError(f"{session.principal} is told {answer} for {name[:60]}")
    return took_ns


def _shares(times_ns: list[int]) -> tuple[float, float]:
    """Half of them, and 99 of 100, took at most so many microseconds."""
    times_ns.sort()
    return times_ns[len(times_ns) // 2] / 1e3, times_ns[len(times_ns) * 99 // 100] / 1e3


async def _measure_changing(directory: Path, *, scale: float) -> Measured:
    """A broker whose rules are changed as by a client, while others' requests are decided."""
    count, users = _sizes(scale)
    # One less than there may be, for the one that comes and goes.
    rules, ask = _prefixed([_session(f"u{number}") for number in range(users)], count - 1)
    _store(directory, rules)
    settings = ("authorizer.class.name=kohort", "super.users=User:ANONYMOUS")
    async with broker_here(directory, 0, *settings) as broker:
        access = broker.services.access
        if access is None:
            raise RuntimeError("the broker has no authorizer")
        authorizer = access.rules.authorizer
        changing = _Changing(access.rules)
        work = asyncio.create_task(changing.change_for(max(0.3, _CHANGING_S * scale)))
        chance = random.Random(1)
        rounds: list[tuple[float, float]] = []
        while not work.done():
            times_ns: list[int] = []
            while len(times_ns) < _QUESTIONS and not work.done():
                times_ns += [_decide(authorizer, ask(chance)) for _ in range(_TURN)]
                changing.check()
                await asyncio.sleep(_PAUSE_S)
            rounds.append(_shares(times_ns))
        changed_per_s = await work
    # The last one ends when the changes do.
    halves, most = zip(*(rounds[:-1] or rounds), strict=True)
    return {"p50": min(halves), "p99": min(most), "changes": changed_per_s}


def _store(directory: Path, rules: Iterable[Rule]) -> None:
    directory.mkdir(parents=True)
    store = MetadataStore(directory, new_cluster_id="benchmarks-of-decisions")
    store.set_properties({property_of(rule): "" for rule in rules})
    store.close()


class _Changing:
    """A rule that comes and goes, and who asks whether it is there."""

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules
        self._session = _session("changing")
        self._rule = _rule("changing", _LITERAL, str(self._session.principal))
        self._is_there: bool | None = False
        """The acknowledged answer; None while a change is under way."""

    async def change_for(self, duration_s: float) -> float:
        """How many changes were acknowledged a second."""
        began_s, count = time.monotonic(), 0
        while (passed_s := time.monotonic() - began_s) < duration_s:
            await asyncio.sleep(max(0.0, count / _CHANGES_PER_S - passed_s))
            was_there, self._is_there = self._is_there, None
            if was_there:
                found = await self._rules.delete([RuleFilter(*self._rule)])
                if found != [[self._rule]]:
                    raise RuntimeError(f"removed {found}")
            else:
                await self._rules.create([self._rule])
            self._is_there = not was_there
            self.check()
            count += 1
        return count / passed_s

    def check(self) -> None:
        """An answer is never older than the last change that was acknowledged."""
        if self._is_there is not None:
            _decide(self._rules.authorizer, Question(self._session, "changing", self._is_there))
