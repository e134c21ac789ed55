"""The value of a group's record, written down without the codec's care for every layout.

A group of five thousand is written whenever it rebalances, so what is done for each of its members
counts: this takes half the time that the codec needs, and comes in steps. The codec makes the rest,
and stays what tests hold this against.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from broker.core.steps import Steps

if TYPE_CHECKING:
    from broker.core.group.records import StoredMember

MEMBERS_PER_STEP: Final = 500
"""About a millisecond."""

_LENGTH = Struct(">h").pack
_TIMEOUTS = Struct(">ii").pack
_BYTES_LENGTH = Struct(">i").pack
_NULL = _LENGTH(-1)


def encode_members(members: Sequence[StoredMember]) -> Steps[bytes]:
    """The members of a GroupMetadataValue of version 3, without their count, in steps.

    Raises:
        struct.error: a text or a number does not fit.
    """
    parts: list[bytes] = []
    # Client, host and timeouts are the same for many.
    shared: dict[tuple[str, str, int, int], bytes] = {}
    for start in range(0, len(members), MEMBERS_PER_STEP):
        if start:
            yield
        _write(members[start : start + MEMBERS_PER_STEP], parts, shared)
    return b"".join(parts)


def _write(
    members: Sequence[StoredMember],
    parts: list[bytes],
    shared: dict[tuple[str, str, int, int], bytes],
) -> None:
    for one in members:
        member_id, instance_id, client_id, host, session_ms, rebalance_ms, metadata, share = one
        known = client_id, host, rebalance_ms, session_ms
        middle = shared.get(known)
        if middle is None:
            timeouts = _TIMEOUTS(rebalance_ms, session_ms)
            middle = shared[known] = _text(client_id) + _text(host) + timeouts
        name = member_id.encode()
        parts += (
            _LENGTH(len(name)),
            name,
            _NULL if instance_id is None else _text(instance_id),
            middle,
            _BYTES_LENGTH(len(metadata)),
            metadata,
            _BYTES_LENGTH(len(share)),
            share,
        )


def _text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH(len(data)) + data
