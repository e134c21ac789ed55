"""``kohort topics``: topics of a Kohort or Kafka cluster, without a JVM."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.offsets import TopicPartition
from kohort.admin.topics import (
    Config,
    Topic,
    add_partitions,
    alter_configs,
    create_topic,
    delete_records,
    delete_topic,
    describe_topic,
    list_topics,
    topic_configs,
    topic_names,
)
from kohort.cli import patterns
from kohort.cli.commands import Commands
from kohort.cli.errors import CommandError, NotFoundError, UsageError, no_topic
from kohort.cli.options import (
    add_kafka,
    assignment,
    cluster_of,
    print_json,
    print_result,
    print_rows,
    refusal,
)
from kohort.cli.output import table
from kohort.cli.partitions import add_times, bounds_of, partitions_named
from kohort.formats.text import counted, shown
from kohort.protocol.errors import ErrorCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = Commands(parser, failure="no such topic")

    command = commands.add("list", "all topics", _list)
    add_kafka(command)
    command.add_argument(
        "--internal", action="store_true", help="include internal topics, as __consumer_offsets"
    )

    command = commands.add("describe", "partitions, offsets, sizes and configs", _describe)
    command.add_argument("topics", metavar="TOPIC", nargs="*", help=f"{patterns.HELP} (all topics)")
    add_kafka(command)
    command.add_argument(
        "--all-configs", action="store_true", help="include configs that have their default"
    )

    command = commands.add("create", "create topics", _create)
    _add_names(command)
    add_kafka(command)
    command.add_argument(
        "--partitions",
        type=int,
        default=-1,
        metavar="N",
        help="number of partitions (the broker's num.partitions)",
    )
    command.add_argument(
        "--replication-factor",
        type=int,
        default=-1,
        metavar="N",
        help="replicas of each partition (the broker's default.replication.factor)",
    )
    _add_config(command)
    command.add_argument(
        "--if-not-exists",
        action="store_true",
        help="if the topic exists, succeed and leave it unchanged",
    )
    _add_dry_run(command)

    command = commands.add("alter", "change configs, add partitions", _alter)
    _add_names(command)
    add_kafka(command)
    command.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="new number of partitions; records with the same key may then go to another partition",
    )
    _add_config(command)
    command.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="reset a config to the broker's default; repeatable",
    )
    _add_dry_run(command)

    add_trim(commands)

    command = commands.add("delete", "delete topics with all their records", _delete)
    _add_names(command)
    add_kafka(command)
    command.add_argument(
        "--if-exists", action="store_true", help="succeed if the topic does not exist"
    )


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="+")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        action="append",
        type=assignment,
        default=[],
        metavar="NAME=VALUE",
        help="a topic config by Kafka's name, as in retention.ms=3600000; repeatable",
    )


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="let the broker validate the change, but change nothing",
    )


def _list(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        topics = list_topics(cluster, internal=options.internal)
    data = [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "internal": topic.is_internal,
        }
        for topic in topics
    ]
    nothing = "no topics; create one with `kohort topics create NAME`"
    titles = {"topic": "TOPIC", "partitions": "PARTITIONS", "replication_factor": "REPLICAS"}
    print_rows(options, "topics", titles, data, nothing)


def _describe(options: argparse.Namespace) -> None:
    described: list[tuple[Topic, list[Config]]] = []
    with cluster_of(options) as cluster:
        for name in patterns.matching(options.topics, lambda: topic_names(cluster)):
            try:
                topic = describe_topic(cluster, name)
                configs = topic_configs(cluster, name) if topic else []
            except RefusedError as error:
                raise _advised(error) from None
            if topic is None:
                raise no_topic(name)
            if not options.all_configs:
                configs = [config for config in configs if config.is_set_here]
            described.append((topic, configs))
    data = {"topics": [_topic_json(topic, configs) for topic, configs in described]}
    print_result(options, data, _topics_lines(described))


def _topics_lines(described: Iterable[tuple[Topic, list[Config]]]) -> Iterator[str]:
    for number, (topic, configs) in enumerate(described):
        if number:
            yield ""
        yield (
            f"{shown(topic.name)}: {counted(len(topic.partitions), 'partition')}, "
            f"{counted(topic.replication_factor, 'replica')}, id {topic.topic_id}"
        )
        for config in configs:
            yield f"  {config.name}={shown(config.value or '')}"
        yield ""
        rows = [
            [
                ",".join(map(str, cell)) if isinstance(cell, list) else cell
                for cell in asdict(partition).values()
            ]
            for partition in topic.partitions
        ]
        head = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "BYTES")
        yield from table(head, rows)


def _topic_json(topic: Topic, configs: Iterable[Config]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
        "configs": {config.name: config.value for config in configs},
        "partitions": list(map(asdict, topic.partitions)),
    }


def _each(options: argparse.Namespace, act: Callable[[Cluster, str], str]) -> None:
    """Call `act` with each topic, and print the outcomes."""
    outcomes: dict[str, str] = {}
    with cluster_of(options) as cluster:
        for name in options.topics:
            outcomes[name] = act(cluster, name)
            if not options.json:
                print(f"{shown(name)}: {outcomes[name]}")
    if options.json:
        print_json({"topics": outcomes})


def _create(options: argparse.Namespace) -> None:
    configs = dict(options.config)

    def create(cluster: Cluster, name: str) -> str:
        try:
            create_topic(
                cluster,
                name,
                partitions=options.partitions,
                replication_factor=options.replication_factor,
                configs=configs,
                is_dry_run=options.dry_run,
            )
        except RefusedError as error:
            exists = error.error == ErrorCode.TOPIC_ALREADY_EXISTS
            if not (exists and options.if_not_exists):
                raise _advised(error) from None
            return "exists"
        return "could be created" if options.dry_run else "created"

    _each(options, create)


def _alter(options: argparse.Namespace) -> None:
    configs = dict(options.config)
    if not (configs or options.delete_config or options.partitions is not None):
        raise UsageError("nothing to change: give --config, --delete-config or --partitions")
    outcomes: dict[str, list[str]] = {}
    with cluster_of(options) as cluster:
        for name in options.topics:
            changes = outcomes.setdefault(name, [])
            try:
                if configs or options.delete_config:
                    alter_configs(
                        cluster, name, configs, options.delete_config, is_dry_run=options.dry_run
                    )
                    changes += [f"{key}={value}" for key, value in configs.items()]
                    changes += [f"{key} reset" for key in options.delete_config]
                if options.partitions is not None:
                    add_partitions(cluster, name, options.partitions, is_dry_run=options.dry_run)
                    changes.append(counted(options.partitions, "partition"))
            except RefusedError as error:
                raise _advised(error) from None
            if not options.json:
                prefix = "would be changed: " if options.dry_run else ""
                print(f"{shown(name)}: {prefix}{', '.join(map(shown, changes))}")
    if options.json:
        print_json({"topics": outcomes, "dry_run": options.dry_run})


def _delete(options: argparse.Namespace) -> None:
    def delete(cluster: Cluster, name: str) -> str:
        try:
            delete_topic(cluster, name)
        except RefusedError as error:
            advised = _advised(error)
            if not (options.if_exists and isinstance(advised, NotFoundError)):
                raise advised from None
            return "does not exist"
        return "deleted"

    _each(options, delete)


def _advised(error: RefusedError) -> CommandError | RefusedError:
    """Return an error with advice if the topic does not exist, otherwise the same error."""
    if isinstance(refusal(error), NotFoundError):
        return NotFoundError(f"{error}; `kohort topics list` shows the topics that exist")
    return error


class Cut(NamedTuple):
    """A partition, and its log start offset before and after `kohort topics trim`."""

    topic: str
    partition: int
    before: int
    after: int


def add_trim(commands: Commands) -> None:
    parser = commands.add("trim", "delete the oldest records of topics", _trim)
    parser.add_argument(
        "partitions", metavar="TOPIC", nargs="+", help="all its partitions; orders:0,2 is two"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-latest", action="store_true", help="delete all records")
    where.add_argument("--to-offset", type=int, metavar="N", help="delete records before offset N")
    add_times(
        where,
        to_datetime="delete records before the first at or after this time: 2026-11-23T06:00:00",
        by_duration="delete records before the first that is younger than this: 12h, 7d",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be deleted, but change nothing"
    )
    add_kafka(parser)


def _trim(options: argparse.Namespace) -> None:
    with cluster_of(options) as cluster:
        cuts = _cuts(cluster, options, partitions_named(cluster, options.partitions))
        if not options.dry_run:
            starts = delete_records(
                cluster,
                {(cut.topic, cut.partition): cut.after for cut in cuts if cut.after > cut.before},
            )
            cuts = [
                cut._replace(after=starts.get((cut.topic, cut.partition), cut.before))
                for cut in cuts
            ]
    data = {"dry_run": options.dry_run, "partitions": [cut._asdict() for cut in cuts]}
    lines = [*table(("TOPIC", "PARTITION", "START", "NEW START"), cuts)]
    if options.dry_run:
        lines += ["", "Nothing was deleted: this was a dry run."]
    print_result(options, data, lines)


def _cuts(
    cluster: Cluster, options: argparse.Namespace, partitions: Sequence[TopicPartition]
) -> list[Cut]:
    bounds = bounds_of(cluster, options, partitions)
    wanted = bounds.timed or bounds.ends
    if options.to_offset is not None:
        wanted = dict.fromkeys(partitions, options.to_offset)
    return [
        Cut(*partition, bounds.starts[partition], bounds.within(partition, wanted[partition]))
        for partition in partitions
    ]
