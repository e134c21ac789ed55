"""Records of the rebalance history for the HTTP pages. They are stored as JSON
(docs/rebalance-history.md) and returned without being parsed completely.
"""

import json
from typing import Final

from kohort.groups.history.json_form import parse_text
from kohort.groups.history.sentence import sentence
from kohort.groups.kinds import GroupKind

MEMBERS_BEGIN: Final = b',"members":['
"""Marks the beginning of a record's members, which come last. The marker cannot occur inside a
value, where its quotation marks would be escaped."""

_MEMBERS_SHOWN: Final = 10
"""Maximum number of awaited members to parse: the summary sentence of a record names no more."""

_DECODER: Final = json.JSONDecoder()


def with_sentence(text: bytes) -> bytes:
    """Return a record's text with the field "sentence" before all others.

    Parses only the members that the sentence names; a record may have a thousand.
    """
    record_sentence = sentence(parse_text(_with_awaited_members(text)))
    return b'{"sentence":%b,%b' % (json.dumps(record_sentence).encode(), text[1:])


def _with_awaited_members(text: bytes) -> bytes:
    """Return a record's text with the members that a consumer group waited for, and no others."""
    head, separator, members = text.partition(MEMBERS_BEGIN)
    if not separator:
        return text
    head += b"}"
    record = json.loads(head)
    if record.get("group_type") != GroupKind.CONSUMER.value:
        return head
    awaited: list[bytes] = []
    for member_id in record["waited_for"]["member_ids"][:_MEMBERS_SHOWN]:
        start = members.find(b'{"member_id":%b,' % json.dumps(member_id).encode())
        if start >= 0:
            _, end = _DECODER.raw_decode(members[start:].decode())
            awaited.append(members[start : start + end])
    return b"%b%b%b]}" % (head[:-1], MEMBERS_BEGIN, b",".join(awaited))


def without_members(text: bytes) -> bytes:
    head, separator, _ = text.partition(MEMBERS_BEGIN)
    return head + b"}" if separator else text
