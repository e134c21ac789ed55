"""A host that has an IPv6 address has 2**64 of them, and is still one host to the broker."""

import asyncio
import struct

import pytest

from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.service import Listener
from tests.support.network.memory_transport import MemoryTransport
from tests.unit.broker.network.edge import Edge

OURS = "2001:db8:1::1"
THEIRS = "2001:db8:2::{:x}"
MB = 1_000_000


def arrive(edge: Edge, ip: str) -> MemoryTransport:
    """A connection to a listener where clients have to authenticate."""
    listener = Listener("SASL_PLAINTEXT", new_service=lambda _: edge.service)
    return MemoryTransport(Connection(edge.server, listener), ip=ip)


async def test_a_crowd_of_its_addresses_turns_away_no_other_client() -> None:
    edge = Edge(NetworkLimits(kohort_unauthenticated_connections_max=4))
    ours = arrive(edge, OURS)
    theirs = [arrive(edge, THEIRS.format(number)) for number in range(1, 20)]
    await asyncio.sleep(0)
    assert not ours.is_lost
    assert [one.is_lost for one in theirs] == 16 * [True] + 3 * [False]


@pytest.mark.parametrize("attackers", [4, 60])
async def test_uploads_from_its_addresses_count_as_those_of_one_host(attackers: int) -> None:
    edge = Edge(NetworkLimits(queued_max_request_bytes=256 * MB))
    for number in range(attackers):
        begin_upload(edge, THEIRS.format(number))
    begin_upload(edge, OURS)
    assert edge.server.memory.block_limit_bytes == edge.server.memory.budget_bytes // 4


def begin_upload(edge: Edge, ip: str) -> None:
    edge.connect(ip).send(struct.pack(">i", 90 * MB) + bytes(100_000))
