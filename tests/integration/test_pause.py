"""A broker whose process stands still for a while: a suspended laptop, a debugger, a long stall."""

import os
import signal
import time
from pathlib import Path

from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.wire import RawClient, framed, request_body, response_in
from tests.support.waiting import wait_until

SESSIONS_MS = (1_000, 4_000, 16_000)
"""Longer ones for a machine that is too busy to begin the pause within the shorter ones."""


def test_a_session_survives_a_pause_if_its_heartbeat_was_waiting_in_the_socket(
    tmp_path: Path,
) -> None:
    overrides = {"group.min.session.timeout.ms": "100"}
    with KohortServer(tmp_path, overrides=overrides) as server:
        assert any(is_told_by_a_pause(server, session_ms) for session_ms in SESSIONS_MS)


def is_told_by_a_pause(server: KohortServer, session_ms: int) -> bool:
    """False if it took so long to begin it that the sessions may have been over."""
    with RawClient(server.port) as member, RawClient(server.port) as silent:
        began_s = time.monotonic()
        names = [f"{name}-{session_ms}" for name in ("member", "silent")]
        heartbeats = [
            join(client, name, session_ms)
            for client, name in zip((member, silent), names, strict=True)
        ]
        os.kill(server.pid, signal.SIGSTOP)
        try:
            if time.monotonic() - began_s > session_ms / 1_000:
                return False
            member.send(framed(request_body(heartbeats[0], 3)))
            time.sleep(2 * session_ms / 1_000)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        answer = response_in(member.receive(), m.HeartbeatResponse, 3)
        assert answer.error_code == ErrorCode.NONE
        with RawClient(server.port) as other:
            wait_until(lambda: state_of(other, names[1]) != "Stable", "the end of a silent session")
        answer = silent.call(heartbeats[1], 3, m.HeartbeatResponse)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        return True


def state_of(client: RawClient, group_id: str) -> str:
    request = m.DescribeGroupsRequest(groups=[group_id])
    return client.call(request, 5, m.DescribeGroupsResponse).groups[0].group_state


def join(client: RawClient, group_id: str, session_timeout_ms: int) -> m.HeartbeatRequest:
    """Make the client the only member of a group; returns its heartbeat."""
    join = m.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = client.call(join, 3, m.JoinGroupResponse)
    assert joined.error_code == ErrorCode.NONE
    sync = m.SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[m.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
    )
    assert client.call(sync, 3, m.SyncGroupResponse).error_code == ErrorCode.NONE
    return m.HeartbeatRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )
