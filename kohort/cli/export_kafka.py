"""``kohort export-kafka``: a stopped Kohort's directory becomes Apache Kafka's."""

import argparse
import time
from collections.abc import Sequence
from typing import Final

from kohort.broker.config.endpoints import Endpoint, parse_endpoints
from kohort.broker.kafka_directory.exporting import (
    CONTROLLER,
    KAFKA_LISTENERS,
    ExportPlan,
    carry_out_export,
    plan_export,
    settings_for_kafka,
)
from kohort.broker.kafka_directory.releases import KAFKA_4_4, RELEASES
from kohort.broker.storage.log.log import OS_FILES
from kohort.cli import kafka_directory
from kohort.cli.kafka_directory import change_hands, new_id

NODE_ID: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See the module."""
    kafka_directory.add_arguments(parser)
    parser.add_argument(
        "--node-id",
        type=int,
        default=NODE_ID,
        metavar="N",
        help="node.id of this broker, Kohort's and Kafka's (%(default)s)",
    )
    parser.add_argument(
        "--kafka",
        choices=RELEASES,
        default=KAFKA_4_4.name,
        help="the earliest release that is to start on it (%(default)s)",
    )
    parser.add_argument(
        "--listeners",
        type=_listeners,
        default=KAFKA_LISTENERS,
        metavar="NAME://HOST:PORT,...",
        help="for the settings that are printed: where Kafka is to listen, with its controller "
        f"under the name {CONTROLLER} ({','.join(map(str, KAFKA_LISTENERS))})",
    )
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    change_hands(
        options,
        "Apache Kafka's",
        make_plan=lambda report: plan_export(
            OS_FILES,
            options.directory,
            node_id=options.node_id,
            new_id=new_id,
            report=report,
            release=RELEASES[options.kafka],
        ),
        carry_out=lambda plan, report: carry_out_export(
            OS_FILES, plan, now_ms=int(time.time() * 1000), report=report
        ),
        words=lambda plan: _words(plan, options.listeners),
    )


def _listeners(text: str) -> Sequence[Endpoint]:
    """Listeners as Kafka has them in its settings. Raises argparse.ArgumentTypeError."""
    try:
        found = parse_endpoints(text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    names = [one.listener for one in found]
    if CONTROLLER not in names or len(names) < 2:
        raise argparse.ArgumentTypeError(f"one named {CONTROLLER} is wanted, and one for clients")
    return found


def _words(plan: ExportPlan, listeners: Sequence[Endpoint]) -> str:
    settings = "\n".join(f"  {line}" for line in settings_for_kafka(plan, listeners))
    return (
        f"a directory of Apache Kafka {plan.release.name} (KRaft), which starts on it as it is,"
        f" without kafka-storage.sh. Settings that it needs:\n{settings}"
    )
