"""What a group's rules answer, as the message that a member gets."""

from kohort.groups.requests import JoinResult, SyncResult
from tests.support import messages as m


def joined(result: JoinResult) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            m.JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                metadata=one.metadata,
            )
            for one in result.members
        ],
    )


def synced(result: SyncResult) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
