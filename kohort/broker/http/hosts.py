"""Which names a browser may know this broker by: against DNS rebinding.

A web page from anywhere can have its own name point to this machine and then read what is served
here, with the user's browser and from inside of the user's network. Its requests bear its name, so
names that somebody could own are refused unless they are known to be ours.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

_NOBODYS: Final = (".localhost", ".local", ".internal", ".svc", ".test")
"""Ends of names that cannot be registered."""


def may_be_called(host: str, known: Collection[str]) -> bool:
    """Whether a Host header is of ours: an address, a name without a dot, one that nobody can own,
    or one of `known`. A request without one is of no browser.
    """
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") <= 1:
        name = name.partition(":")[0]
    name = name.removesuffix(".")
    if "." not in name and ":" not in name:
        return True
    if name.endswith(_NOBODYS) or name in known:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
