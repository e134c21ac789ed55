"""``kohort serve`` and, in a checkout, ``python -m broker``; imports the broker only in `run`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kohort.broker.runtime.memory.collector import nothing_collected


def _listeners(port: str) -> str:
    if not (port.isdecimal() and int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{port!r} is not a port from 0 to 65535")
    return f"listeners=PLAINTEXT://localhost:{port}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        dest="override",
        action="append",
        default=[],
        type=_listeners,
        metavar="PORT",
        help="listen on this port of localhost: --override listeners=PLAINTEXT://localhost:PORT",
    )
    parser.add_argument(
        "--data",
        dest="override",
        action="append",
        default=[],
        type="log.dirs={}".format,
        metavar="DIRECTORY",
        help="keep the data in this directory: --override log.dirs=DIRECTORY",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings in Kafka's server.properties format",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set NAME to VALUE; overrides --config and the environment "
        "(KAFKA_NUM_PARTITIONS=3); repeatable",
    )


def run(options: argparse.Namespace) -> int:
    """Run the broker with parsed options until SIGTERM or SIGINT; return the exit code."""
    with nothing_collected():
        from kohort.broker.daemon import run_daemon  # noqa: PLC0415 - nearly all of the startup time.
    return run_daemon(options.config, options.override)


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m broker`` in a checkout."""
    parser = argparse.ArgumentParser(prog="python -m broker", description="Start the broker.")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
