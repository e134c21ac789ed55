"""One member of a record as JSON: the result of `json.dumps` on its `json_form`, five times as
fast.

A record lists a thousand members. Inspecting the type of every field costs several times as much as
writing it, so here each field is written as its known type.
"""

from json.encoder import encode_basestring_ascii
from typing import Final

from kohort.groups.events import Certainty
from kohort.groups.history.model import MemberPartitions, MemberTimeline

_BOOLEANS: Final = {False: "false", True: "true"}
_CERTAINTIES: Final = {
    certainty: "" if certainty is Certainty.CERTAIN else f',"certainty":"{certainty.value}"'
    for certainty in Certainty
}


def member_text(member: MemberTimeline) -> str:
    """Return one of `members`, in the order of its fields, without spaces, in ASCII."""
    return (
        f'{{"member_id":{_text(member.member_id)}'
        f',"instance_id":{_text(member.instance_id)}'
        f',"client_id":{_text(member.client_id)}'
        f',"host":{_text(member.host)}'
        f',"client_software_name":{_text(member.client_software_name)}'
        f',"client_software_version":{_text(member.client_software_version)}'
        f',"type":{_text(member.type)}'
        f',"role":{_text(member.role)}'
        f',"told_ms":{_number(member.told_ms)}'
        f',"join_received_ms":{_number(member.join_received_ms)}'
        f',"join_answered_ms":{_number(member.join_answered_ms)}'
        f',"sync_received_ms":{_number(member.sync_received_ms)}'
        f',"sync_answered_ms":{_number(member.sync_answered_ms)}'
        f',"epoch_before":{_number(member.epoch_before)}'
        f',"epoch":{_number(member.epoch)}'
        f',"revoked_ms":{_number(member.revoked_ms)}'
        f',"reached_ms":{_number(member.reached_ms)}'
        f',"completed_ms":{_number(member.completed_ms)}'
        f',"fate":{_text(member.fate)}'
        f',"fate_ms":{_number(member.fate_ms)}{_CERTAINTIES[member.certainty]}'
        f',"replaced_by":{_text(member.replaced_by)}'
        f',"reason":{_text(member.reason)}'
        f',"reason_source":{_text(member.reason_source)}'
        f',"reason_number":{_number(member.reason_number)}'
        f',"reason_text":{_text(member.reason_text)}'
        f',"mode":{_text(member.mode)}'
        f',"stopped_ms":{_number(member.stopped_ms)}'
        f',"stopped_open":{_BOOLEANS[member.stopped_open]}'
        f',"session_timeout_ms":{_number(member.session_timeout_ms)}'
        f',"rebalance_timeout_ms":{_number(member.rebalance_timeout_ms)}'
        f',"partitions":{_partitions(member.partitions)}}}'
    )


def _partitions(partitions: MemberPartitions) -> str:
    return (
        f'{{"known":{_BOOLEANS[partitions.known]}'
        f',"kept":{partitions.kept}'
        f',"given_up":{_texts(partitions.given_up)}'
        f',"given_up_count":{partitions.given_up_count}'
        f',"gained":{_texts(partitions.gained)}'
        f',"gained_count":{partitions.gained_count}}}'
    )


def _texts(texts: tuple[str, ...]) -> str:
    return f"[{','.join(map(encode_basestring_ascii, texts))}]"


def _text(text: str | None) -> str:
    return "null" if text is None else encode_basestring_ascii(text)


def _number(number: int | None) -> str:
    return "null" if number is None else str(number)
