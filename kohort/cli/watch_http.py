"""The HTTP port of ``kohort watch``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kohort.admin.cluster import Cluster
from kohort.cli.errors import UsageError
from kohort.insight.output import announce
from kohort.watch.follow import Follower
from kohort.watch.listen import Listen, parse_listen
from kohort.watch.poll_only import PollFollower

if TYPE_CHECKING:
    from kohort.watch.service import WatchService

Json: TypeAlias = dict[str, Any]

NONE: Final = "none"


def add_http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http",
        type=_listen,
        default=Listen(),
        metavar="HOST:PORT",
        help="where to serve the console, metrics, and the pages that `kohort groups why` reads, or"
        f" {NONE} (%(default)s, or the next free port)",
    )


def _listen(text: str) -> Listen | None:
    try:
        return None if text == NONE else parse_listen(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}, such as localhost:9308, or :9308 for all interfaces; {NONE}: no port"
        ) from error


class NotServed:
    """Takes the place of a `WatchService` if no port is to be opened."""

    def add(self, record: Json) -> None:
        """Ignore a record."""

    def go_live(self) -> None:
        """Do nothing: no HTTP port is open."""

    def publish(self) -> None:
        """Do nothing: no HTTP port is open."""


@contextmanager
def serving(
    options: argparse.Namespace, follower: Follower | PollFollower, cluster: Cluster
) -> Iterator[WatchService | NotServed]:
    """Serve the follower's groups over HTTP, as the options say. Raises UsageError."""
    listen: Listen | None = options.http
    if listen is None:
        yield NotServed()
        return
    from kohort.watch.service import WatchService  # noqa: PLC0415 - not needed for `--once`.

    service = WatchService(follower, cluster, listen)
    try:
        service.start()
    except OSError as error:
        reason = f"--http {listen}: {error.strerror or error}"
        if listen.is_given:
            text = f"{reason}; choose another port, 0 for any free port, or {NONE} for no port"
            raise UsageError(text) from error
        announce(f"{reason}; continuing without it")
        yield NotServed()
        return
    with service:
        moved = f", because port {listen.port} is taken" if service.has_moved else ""
        print(f"Console, metrics and pages: {service.url}{moved}", file=sys.stderr)
        yield service
