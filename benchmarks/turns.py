"""Turns of one group: what a member costs, without sockets and codecs.

A group of a thousand comes together, sends heartbeats, commits, and comes together again, driven
through the coordinator of a broker in this process; the log that its records go to is the real one.
"""

import shutil
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Bench, Measured, Row
from benchmarks.in_process import broker_here, run_apart
from kohort.broker.coordinator.classic_requests import ClassicRequests
from kohort.broker.runtime.later import Later
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    JoinRequest,
    JoinResult,
    OffsetToCommit,
    SyncRequest,
)
from kohort.protocol.errors import ErrorCode

TITLE: Final = "Turns of a group of 1,000"

_MEMBERS: Final = 1_000
_BEATS: Final = 20
_COMMITS: Final = 5_000
_DELAY_MS: Final = 3_000
"""All members join before the first generation begins."""


def measure(bench: Bench) -> Iterable[Row]:
    size = int(bench.scaled(_MEMBERS))
    work = partial(
        _measure_all,
        size=size,
        commits=int(bench.scaled(_COMMITS)),
        delay_ms=max(500, int(bench.scaled(_DELAY_MS))),
    )
    figures = bench.measure_ours(lambda: _measure_in(bench.directory / "turns", work))
    for name, figure in figures.items():
        yield Row(name, "us each", figure)


def _measure_in(directory: Path, work: Callable[[Path], Awaitable[Measured]]) -> Measured:
    shutil.rmtree(directory, ignore_errors=True)
    return run_apart(work, directory)


async def _measure_all(directory: Path, *, size: int, commits: int, delay_ms: int) -> Measured:
    measured: dict[str, float] = {}
    async with broker_here(directory, delay_ms) as broker:
        groups, group_id = broker.services.groups, "turns"
        began_s = time.thread_time()
        members = await _come(broker.services.classic_groups, group_id, size)
        measured["join and sync, CPU of a member"] = (time.thread_time() - began_s) / size * 1e6
        began_s = time.thread_time()
        for _ in range(_BEATS):
            for joined in members:
                error = groups.heartbeat(group_id, joined.member_id, None, joined.generation)
                if error is not ErrorCode.NONE:
                    raise RuntimeError(f"a heartbeat was answered {error!r}")
        measured["heartbeat, CPU"] = (time.thread_time() - began_s) / (size * _BEATS) * 1e6
        joined = members[-1]
        for gathered in (1, 100):
            began_s = time.thread_time()
            for number in range(0, commits, gathered):
                tickets = [
                    groups.commit(
                        group_id,
                        CommitRequest(
                            (OffsetToCommit("t", 0, number + extra),),
                            joined.member_id,
                            generation=joined.generation,
                        ),
                        may_answer_group_not_found=True,
                    )
                    for extra in range(gathered)
                ]
                for ticket in tickets:
                    await _check(ticket.into(lambda result: result))
            each_s = (time.thread_time() - began_s) / (len(range(0, commits, gathered)) * gathered)
            measured[f"commit, {gathered} at a time, CPU"] = each_s * 1e6
        committed = groups.committed(group_id, "t", 0)
        if committed is None or committed.offset < commits - 1:
            raise RuntimeError(f"the last commit is not there: {committed}")
    return measured


async def _come(groups: ClassicRequests, group_id: str, size: int) -> list[JoinResult]:
    """All join at once, and get what the leader gave them."""
    request = JoinRequest(
        member_id="", instance_id=None, client_id="bench", client_host="127.0.0.1",
        session_timeout_ms=45_000, rebalance_timeout_ms=300_000, protocol_type="consumer",
        protocols=(("range", b"subscription"),), requires_known_id=False,
    )  # fmt: skip
    joins = [groups.join(group_id, request).into(lambda result: result) for _ in range(size)]
    members: list[JoinResult] = [await _answered(one) for one in joins]
    syncs = []
    for member in members:
        shares = {one.member_id: one.member_id.encode() for one in member.members}
        sync = SyncRequest(member.member_id, None, member.generation, assignments=shares)
        syncs.append(groups.sync(group_id, sync).into(lambda result: result))
    for member, waiting in zip(members, syncs, strict=True):
        synced = await _answered(waiting)
        if synced.error is not ErrorCode.NONE or synced.assignment != member.member_id.encode():
            raise RuntimeError(f"a sync was answered {synced}")
    return members


async def _answered(answer: Any) -> Any:  # noqa: ANN401 - of whatever was asked.
    return await answer if isinstance(answer, Later) else answer


async def _check(answer: CommitResult | Later[CommitResult]) -> None:
    result = await _answered(answer)
    if result.errors != (ErrorCode.NONE,):
        raise RuntimeError(f"a commit was answered {result}")
