"""``kohort doctor``: checks, without sending requests, whether this machine can run a broker."""

import argparse
import importlib
import importlib.util
import json
import os
import platform
import resource
import shutil
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kohort.broker.__main__ import add_arguments as add_daemon_arguments
from kohort.broker.config import BrokerConfig, ConfigError, LoadedConfig, load
from kohort.broker.storage.layout import KAFKA_FILE
from kohort.broker.storage.lock import is_locked
from kohort.cli.options import add_json
from kohort.version import VERSION

COMPILED: Final = {
    "codecs of messages": "kohort.protocol.hot_codecs",
    "walk over records": "kohort.protocol.records.walk",
    "unpacking of records": "kohort.client.core.fetch.unpack",
}
FILES_MIN: Final = 10_000
"""Warn if the process may open fewer files than this. Half of the file descriptors are reserved for
logs; see `connections_within`."""
FREE_BYTES_MIN: Final = 1 << 30

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"


class Finding(NamedTuple):
    verdict: str
    what: str
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kohort serve`, and --json."""
    parser.epilog = "Exit codes: 0; 1 a broker could not start; 2 usage."
    add_daemon_arguments(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the results of all checks; return 1 if there is a problem."""
    findings = [*examine(options.config, options.override)]
    if options.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            print(f"{finding.verdict:<7}  {finding.what:<{width}}  {finding.text}")
    return 1 if any(finding.verdict == PROBLEM for finding in findings) else 0


def examine(file: Path | None, overrides: list[str]) -> Iterator[Finding]:
    """Run all checks, from the installation to the ports."""
    yield Finding(OK, "kohort", f"{VERSION} in {Path(__file__).parents[1]}")
    yield _python()
    yield from _compiled()
    yield _open_files()
    try:
        loaded = load(file=file, overrides=overrides, environment=os.environ)
    except ConfigError as error:
        for problem in error.problems:
            yield Finding(PROBLEM, "settings", problem)
        return
    for warning in loaded.warnings:
        yield Finding(WARNING, "settings", warning)
    # Imports TLS, which --help does not need.
    from kohort.cli.security_checks import check_security  # noqa: PLC0415

    yield from check_security(loaded)
    yield from _data_directory(loaded.config)
    yield from _ports(loaded)


def _python() -> Finding:
    text = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if hasattr(sys, "gettotalrefcount"):
        return Finding(WARNING, "python", f"{text}: a debug build, several times as slow")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Finding(WARNING, "python", f"{text}: an untested free-threaded build")
    return Finding(OK, "python", text)


def _compiled() -> Iterator[Finding]:
    for what, name in COMPILED.items():
        spec = importlib.util.find_spec(name)
        if spec is not None and str(spec.origin).endswith(".so"):
            yield Finding(OK, "compiled", what)
        else:
            text = f"{what}: slower, not compiled; install again with a C compiler"
            yield Finding(WARNING, "compiled", text)


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FILES_MIN:
        shown = "unlimited" if hard == resource.RLIM_INFINITY else f"up to {hard}"
        return Finding(OK, "open files", shown)
    text = f"up to {hard}: connections and logs share them; raise `ulimit -Hn`"
    return Finding(WARNING, "open files", text)


def _data_directory(config: BrokerConfig) -> Iterator[Finding]:
    directory = config.data_directory.absolute()
    there = directory
    while not there.exists():
        there = there.parent
    if not _can_write(there):
        yield Finding(PROBLEM, "data", f"{there} cannot be written to")
        return
    state = "is there" if there == directory else "will be created"
    if is_locked(directory):
        yield Finding(PROBLEM, "data", f"{directory} is in use by a broker")
    elif (directory / KAFKA_FILE).exists():
        text = f"{directory} is Apache Kafka's; `kohort import-kafka {directory}` takes it over"
        yield Finding(PROBLEM, "data", text)
    else:
        yield Finding(OK, "data", f"{directory} {state}")
    free = shutil.disk_usage(there).free
    verdict = OK if free >= FREE_BYTES_MIN else WARNING
    yield Finding(verdict, "disk", f"{free / (1 << 30):.1f} GiB free")


def _can_write(directory: Path) -> bool:
    """Create a file: some file systems, such as /proc, report write permission and then refuse."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _ports(loaded: LoadedConfig) -> Iterator[Finding]:
    config = loaded.config
    places = [
        (f"listener {endpoint.listener}", endpoint.host, endpoint.port)
        for endpoint in config.listener_endpoints
    ]
    if config.kohort_metrics_port > 0:
        places.append(("metrics", config.kohort_metrics_host, config.kohort_metrics_port))
    if config.kohort_console_port > 0:
        places.append(("console", config.kohort_console_host, config.kohort_console_port))
    for what, host, port in places:
        error = _cannot_bind(host, port)
        shown = f"{host or 'every interface'}:{port}"
        if error is None:
            yield Finding(OK, what, f"{shown} is free")
        else:
            is_default = (
                what in {"metrics", "console"} and f"kohort.{what}.port" not in loaded.given
            )
            if is_default:
                yield Finding(WARNING, what, f"{shown}: {error}; the next free port will be used")
            else:
                yield Finding(PROBLEM, what, f"{shown}: {error}")


def _cannot_bind(host: str, port: int) -> str | None:
    try:
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        return str(error)
    failure: str | None = None
    for family, kind, *_, address in addresses:
        with socket.socket(family, kind) as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                if family == socket.AF_INET6:
                    candidate.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                candidate.bind(address)
            except OSError as error:
                failure = error.strerror or str(error)
            else:
                return None
    return failure
