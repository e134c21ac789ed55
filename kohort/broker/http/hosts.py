"""Host names that browsers may use for this broker: protection against DNS rebinding.

Any web page can let its own name resolve to this machine and then read the pages here, through the
user's browser and from inside the user's network. Its requests have its name in the Host header, so
names that anybody could register are refused unless they are configured.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

_NOBODYS: Final = (".localhost", ".local", ".internal", ".svc", ".test")
"""Suffixes of names that cannot be registered."""


def may_be_called(host: str, known: Collection[str]) -> bool:
    """Whether a Host header is accepted: an address, a name without a dot, one that no one can
    register, or one of `known`. A request without one is not from a browser.
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
