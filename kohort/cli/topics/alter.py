"""``kohort topics alter``: change configs of topics, and add partitions."""

import argparse

from kohort.admin.cluster import RefusedError
from kohort.admin.topics import add_partitions, alter_configs
from kohort.cli.errors import UsageError
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.cli.topics.options import add_config, add_dry_run, add_names, configs_of, refused
from kohort.formats.text import counted, shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    add_kafka(parser)
    parser.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="so many in all; keys may then go to other partitions than before",
    )
    add_config(parser)
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="take a config back to the broker's default; may be given several times",
    )
    add_dry_run(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    configs = configs_of(options.config)
    if not (configs or options.delete_config or options.partitions is not None):
        raise UsageError("nothing to change: give --config, --delete-config or --partitions")
    outcomes: dict[str, list[str]] = {}
    with cluster_of(options) as cluster:
        for name in options.topics:
            done = outcomes.setdefault(name, [])
            try:
                if configs or options.delete_config:
                    alter_configs(
                        cluster, name, configs, options.delete_config, is_dry_run=options.dry_run
                    )
                    done += [f"{key}={value}" for key, value in configs.items()]
                    done += [f"{key} is the broker's" for key in options.delete_config]
                if options.partitions is not None:
                    add_partitions(cluster, name, options.partitions, is_dry_run=options.dry_run)
                    done.append(counted(options.partitions, "partition"))
            except RefusedError as error:
                raise refused(error) from error
            if not options.json:
                prefix = "would be changed: " if options.dry_run else ""
                print(f"{shown(name)}: {prefix}{', '.join(map(shown, done))}")
    if options.json:
        print_json({"topics": outcomes, "dry_run": options.dry_run})
