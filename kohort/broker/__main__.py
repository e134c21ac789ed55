"""``kohort serve`` and, in a checkout, ``python -m broker``; light until the broker runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.broker.runtime.memory.collector import nothing_collected

if TYPE_CHECKING:
    import argparse


def plain_options(arguments: Sequence[str]) -> tuple[Path | None, list[str]] | None:
    """Return file and overrides if the arguments are pairs of an option's full name and its value;
    None for all others, which argparse has to read: it takes a 30th of a start.
    """
    file, overrides = None, []
    for name, value in zip(arguments[::2], arguments[1::2], strict=False):
        match name:
            case "--port" if _is_port(value):
                overrides.append(_listeners(value))
            case "--data" if not value.startswith("-"):
                overrides.append(_data(value))
            case "--config" if not value.startswith("-"):
                file = Path(value)
            case "--override" if not value.startswith("-"):
                overrides.append(value)
            case _:
                return None
    return None if len(arguments) % 2 else (file, overrides)


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) < 6 and int(text) < 1 << 16


def _listeners(port: str) -> str:
    if not _is_port(port):
        from argparse import ArgumentTypeError  # noqa: PLC0415 - see `plain_options`.

        raise ArgumentTypeError(f"{port!r} is not a port from 0 to 65535")
    return f"listeners=PLAINTEXT://localhost:{port}"


def _data(directory: str) -> str:
    return f"log.dirs={directory}"


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
        type=_data,
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
        help="one setting, above the file and the environment (KAFKA_NUM_PARTITIONS=3); repeatable",
    )


def run(options: argparse.Namespace) -> int:
    """Run the broker with parsed options until SIGTERM or SIGINT; return the exit code."""
    return serve(options.config, options.override)


def serve(file: Path | None, overrides: Sequence[str]) -> int:
    """Run the broker as `run` does."""
    with nothing_collected():
        from kohort.broker.daemon import run_daemon  # noqa: PLC0415 - nearly all of the startup time.
    return run_daemon(file, overrides)


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m broker`` in a checkout."""
    import argparse  # noqa: PLC0415 - see `plain_options`.

    parser = argparse.ArgumentParser(prog="python -m broker", description="Start the broker.")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
