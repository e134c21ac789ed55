"""What the address of a peer or of a listener says: whether it is this machine, and whose it is."""

from ipaddress import IPv6Address, ip_address
from typing import Final

_PREFIX_BITS: Final = 64
"""What one customer of a provider has at least of IPv6 (RFC 6177): a /64 is no more than one."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener at such a host.

    Of names that is true of ``localhost`` alone (RFC 6761), whatever others look like.
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


def owner_of(ip: str) -> str:
    """The owner of an address, where each is to have a share: IPv6 has its networks, as
    somebody who has one address has 2**64.
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
