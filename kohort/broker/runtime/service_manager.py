"""Notifies systemd, or another manager with its protocol, of readiness and stopping (sd_notify)."""

import logging
import os
import socket
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

logger = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Send a state; does nothing without NOTIFY_SOCKET, and never fails the broker."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        # A name in the abstract namespace, which begins with a NUL.
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one:
            one.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("NOTIFY_SOCKET cannot be told %s: %s", state, error)
