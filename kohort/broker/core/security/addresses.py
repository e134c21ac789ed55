"""Addresses of peers and listeners: loopback addresses, text forms, address blocks, and delays of
responses after repeated authentication failures.
"""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from kohort.broker.core.recently_used import RecentlyUsed

_PREFIX_BITS: Final = 64
"""Prefix length of an IPv6 address block: the smallest network that a customer gets (RFC 6177)."""


def is_loopback(host: str) -> bool:
    """Whether a listener at the host is reachable only from this machine.

    ``localhost`` is the only host name that counts as loopback (RFC 6761).
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def host_text(ip: str) -> str:
    """Return an address as Java writes it, ``2001:db8:0:0:0:0:0:1`` for ``2001:db8::1``. Access
    rules are compared as text, and rules made for Kafka have this form.
    """
    if ":" not in ip:
        return ip
    address, percent, zone = ip.partition("%")
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return ip
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = parsed.exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + zone


@lru_cache(maxsize=1_000)
def address_block_of(ip: str) -> str:
    """Return the address block, the unit of fairness among clients: the IPv4 address, or the /64
    network of IPv6, because a host in such a network can usually use all of its 2**64 addresses.
    """
    try:
        address = ip_address(ip)
    except ValueError:
        return ip
    if not isinstance(address, IPv6Address):
        return ip
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{int(address) >> _PREFIX_BITS:x}/{_PREFIX_BITS}"


FAILURES: Final = 10
WITHIN_MS: Final = 10_000
LONGEST_MS: Final = 5_000
BLOCKS_MAX: Final = 10_000


class FailureDelays:
    """Counts recent failures by address block, because with counts by user, attackers could lock
    users out. Above BLOCKS_MAX, the block that failed longest ago is dropped.
    """

    def __init__(self) -> None:
        # Lists, because most have one item, and a deque takes half a kilobyte.
        self._failed_ms: RecentlyUsed[str, list[int]] = RecentlyUsed(list, BLOCKS_MAX)

    def delay_ms(self, ip: str, now_ms: int, least_ms: int) -> int:
        """Record a failure at `now_ms`; return its response's delay, at least `least_ms`."""
        failed = self._failed_ms[address_block_of(ip)]
        is_much = len(failed) == FAILURES and now_ms - failed[0] < WITHIN_MS
        if len(failed) == FAILURES:
            del failed[0]
        failed.append(now_ms)
        return max(least_ms, LONGEST_MS) if is_much else least_ms
