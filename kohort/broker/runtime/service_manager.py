"""Tells systemd, or whatever speaks its protocol, that the broker is ready or stops (sd_notify)."""

import logging
import os
import socket
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

logger = logging.getLogger(__name__)


def tell(state: str) -> None:
    """Does nothing where no one has asked to be told, by NOTIFY_SOCKET; never fails the broker."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        # A name in the abstract namespace, which begins with a zero.
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one:
            one.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("NOTIFY_SOCKET cannot be told %s: %s", state, error)
