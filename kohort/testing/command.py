"""``kohort testing``: the test kit for other languages."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.testing.control import Control


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="testing", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="in-memory brokers, with an HTTP port to create, inspect and disturb them",
        description="In-memory brokers for tests in any language: docs/testing-your-service.md.",
    )
    serve.add_argument(
        "--control", type=int, default=0, metavar="PORT", help="HTTP port; 0 for any free one"
    )
    serve.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="PORT",
        help="port of the first broker; 0 for any free one",
    )
    serve.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the first broker; may be repeated",
    )
    serve.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    # Imported here, so that `kohort --help` does not import a broker.
    from kohort.broker.app import StartError  # noqa: PLC0415 - see above.
    from kohort.broker.config import ConfigError  # noqa: PLC0415 - see above.
    from kohort.broker.network.server.listening import (  # noqa: PLC0415 - see above.
        raise_descriptor_limit,
    )
    from kohort.testing.control import Control  # noqa: PLC0415 - see above.
    from kohort.testing.kit.machine import HOST  # noqa: PLC0415 - see above.

    raise_descriptor_limit()
    settings = dict(given.partition("=")[::2] for given in options.override)
    try:
        control = Control(options.control, settings, kafka_port=options.port)
    except (OSError, StartError, ConfigError) as error:
        print(f"kohort: {error}", file=sys.stderr)  # noqa: T201 - an error message for the user.
        return 3
    with closing(control), _stopping(control):
        where = control.first.bootstrap_servers
        text = f"bootstrap.servers {where}, control http://{HOST}:{control.port}"
        print(text, flush=True)  # noqa: T201 - the caller waits for this line.
        control.serve()
    return 0


@contextmanager
def _stopping(control: Control) -> Iterator[None]:
    """Stop the server on SIGTERM and SIGINT while the context lasts."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        # In a separate thread, because the handler interrupts the serving thread.
        threading.Thread(target=control.shutdown, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
