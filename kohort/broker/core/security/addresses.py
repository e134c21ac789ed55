"""Classifies addresses of peers and listeners: whether one is this machine, and who owns it."""

from ipaddress import IPv6Address, ip_address
from typing import Final

_PREFIX_BITS: Final = 64
"""The smallest IPv6 network that a provider gives a customer (RFC 6177): a /64 is one owner."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener at such a host.

    The only name for which this is true is ``localhost`` (RFC 6761).
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
    """An address as Java writes it, ``2001:db8:0:0:0:0:0:1`` for ``2001:db8::1``: rules compare
    the text, and those made for Kafka have this one.
    """
    if ":" not in ip:
        return ip
    address, percent, zone = ip.partition("%")
    try:
        found = IPv6Address(address)
    except ValueError:
        return ip
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    groups = found.exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + zone


def address_block_of(ip: str) -> str:
    """The owner of an address, for sharing work fairly. For IPv6 it is the /64 network, because
    a host that has one of its addresses can use all 2**64.
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
