"""Reports readiness and stopping to systemd, or to another service manager that uses sd_notify."""

import logging
import os
import socket
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

logger = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Send a state to the service manager, if NOTIFY_SOCKET is set; an error is only logged."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        # A name in the abstract namespace, which begins with a NUL.
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as unix_socket:
            unix_socket.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("Cannot send %s to NOTIFY_SOCKET: %s", state, error)
