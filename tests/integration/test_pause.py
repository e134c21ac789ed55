"""A broker whose process stands still for a while: a suspended laptop, a debugger, a long stall."""

import os
import signal
import time
from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.kohort_server import KohortServer
from tests.wire import RawClient, framed, request_body, response_in

SESSION_MS = 1_000


def test_a_session_survives_a_pause_if_its_heartbeat_was_waiting_in_the_socket(
    tmp_path: Path,
) -> None:
    overrides = {"group.min.session.timeout.ms": "100"}
    with (
        KohortServer(tmp_path, overrides=overrides) as server,
        RawClient(server.port) as member,
        RawClient(server.port) as silent,
    ):
        heartbeats = [join(client, name) for client, name in ((member, "g"), (silent, "h"))]
        os.kill(server.pid, signal.SIGSTOP)
        try:
            member.send(framed(request_body(heartbeats[0], 3)))
            time.sleep(2 * SESSION_MS / 1_000)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        answer = response_in(member.receive(), HeartbeatResponse, 3)
        assert answer.error_code == ErrorCode.NONE
        time.sleep(0.2)
        answer = silent.call(heartbeats[1], 3, HeartbeatResponse)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID, "it was silent for too long"


def join(client: RawClient, group_id: str) -> HeartbeatRequest:
    """Make the client the only member of a group; returns its heartbeat."""
    join = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = client.call(join, 3, JoinGroupResponse)
    assert joined.error_code == ErrorCode.NONE
    sync = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
    )
    assert client.call(sync, 3, SyncGroupResponse).error_code == ErrorCode.NONE
    return HeartbeatRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )
