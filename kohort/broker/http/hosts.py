"""Host names that browsers may use for this broker: protection against DNS rebinding.

Any web page can make its own name resolve to this machine and then read the pages here, through the
user's browser and from inside the user's network. Its requests have its name in the Host header, so
names that anybody could register are rejected unless they are configured.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

_UNREGISTRABLE: Final = (".localhost", ".local", ".internal", ".svc", ".test")
"""Suffixes of names that cannot be registered."""


def may_be_called(host: str, known: Collection[str]) -> bool:
    """Whether a Host header is accepted: an address, a name without a dot, a name that cannot be
    registered, or one of `known`. An empty one is accepted, because browsers always send it.
    """
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") <= 1:
        name = name.partition(":")[0]
    name = name.removesuffix(".")
    if "." not in name and ":" not in name:
        return True
    if name.endswith(_UNREGISTRABLE) or name in known:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
