"""Command-line arguments shared by several jobs, and the objects created from them."""

import argparse
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from kohort.insight.errors import UsageError
from kohort.pipeline import session
from kohort.pipeline.catalog import Namespace
from kohort.pipeline.kafka import Kafka
from kohort.pipeline.lake import Lake
from kohort.pipeline.lake_formats import DELTA, ICEBERG, absolute, open_lake
from kohort.pipeline.metrics import Metrics
from kohort.pipeline.streaming.query import StreamSettings

LAKE: Final = "lake"
BOOTSTRAP_SERVER: Final = "localhost:9092"
TIMEOUT_S: Final = 15.0
PATIENCE_S: Final = 600.0
SECONDS_MAX: Final = 7 * 24 * 3_600


def add_spark(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        default=_environment("SPARK_MASTER"),
        metavar="URL",
        help=f"the cluster ({session.MASTER}, or spark-submit's; KOHORT_SPARK_MASTER)",
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, such as spark.driver.memory=4g; may be repeated",
    )
    group.add_argument(
        "--jars",
        type=Path,
        metavar="DIRECTORY",
        help="directory of Spark's jars for Kafka and Delta (the user's cache; KOHORT_JARS)",
    )
    group.add_argument(
        "--log-level",
        default=_environment("SPARK_LOG_LEVEL", "ERROR"),
        choices=("DEBUG", "INFO", "WARN", "ERROR", "OFF"),
        help="Spark's own log level on standard error; WARN includes stack traces of failures "
        "(%(default)s; KOHORT_SPARK_LOG_LEVEL)",
    )


def add_kafka(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Kafka")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        default=_environment("BOOTSTRAP_SERVER", BOOTSTRAP_SERVER),
        metavar="HOST:PORT[,...]",
        help="a broker, Kohort's or Kafka's (%(default)s; KOHORT_BOOTSTRAP_SERVER)",
    )
    group.add_argument(
        "--kafka",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Kafka client setting, such as isolation.level=read_committed; may be repeated",
    )
    group.add_argument(
        "--kafka-config",
        type=Path,
        default=_environment("KAFKA_CONFIG"),
        metavar="FILE",
        help="file with Kafka client settings, for example passwords (KOHORT_KAFKA_CONFIG)",
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long to wait for a broker's response (%(default)s)",
    )


_S3: Final = "s3a://"


def add_stream(parser: argparse.ArgumentParser, *, group: str, interval_s: float) -> None:
    """Add the arguments for following a topic; `group` and `interval_s` are the job's defaults."""
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="end after reading the records present at the start (default: continue)",
    )
    parser.add_argument(
        "--interval",
        type=seconds,
        default=interval_s,
        metavar="SECONDS",
        help="interval between batches of a continuous run; longer is more efficient (%(default)s)",
    )
    add_patience(parser)
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="the consumer group to which progress is committed, so that tools show the lag; "
        f'"" for none (default: {group}- and eight hex digits derived from the lake)',
    )
    parser.set_defaults(group_prefix=group)
    parser.add_argument(
        "--checkpoints",
        metavar="DIRECTORY",
        help="directory of the queries' checkpoints (default: _checkpoints in the lake)",
    )


def stream_of(options: argparse.Namespace, lake: Lake) -> StreamSettings:
    return StreamSettings(
        checkpoints=absolute(options.checkpoints or f"{lake.root}/_checkpoints"),
        group=_group(options, lake),
        available_now=options.available_now,
        interval_s=options.interval,
    )


def _group(options: argparse.Namespace, lake: Lake) -> str | None:
    if options.group is not None:
        return options.group or None
    # One group per lake, because two lakes that land the same topic have different positions.
    digits = hashlib.sha256(lake.root.encode()).hexdigest()[:8]
    return f"{options.group_prefix}-{digits}"


def add_patience(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--patience",
        type=_seconds_or_none,
        default=PATIENCE_S,
        metavar="SECONDS",
        help="how long a continuous run retries if brokers do not answer (%(default)s)",
    )


def add_metrics(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Prometheus")
    group.add_argument(
        "--metrics-port",
        type=positive,
        metavar="PORT",
        help="serve the job's metrics at http://...:PORT/metrics",
    )
    group.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE",
        help="write the metrics to a file, for node_exporter's textfile collector",
    )


def metrics_of(options: argparse.Namespace, job: str) -> Metrics:
    """Return the job's metrics, exported as requested. Raises UnavailableError."""
    metrics = Metrics(job)
    if options.metrics_port is not None:
        metrics.serve(options.metrics_port)
    if options.metrics_file is not None:
        metrics.write_into(options.metrics_file)
    return metrics


def add_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="GROUP",
        help="only this group; may be repeated",
    )


def add_lake(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lake",
        default=_environment("LAKE", LAKE),
        metavar="DIRECTORY",
        help="the root of the tables: a directory or any URL that Hadoop supports "
        "(%(default)s; KOHORT_LAKE)",
    )
    parser.add_argument(
        "--format",
        default=_environment("FORMAT", DELTA),
        choices=(DELTA, ICEBERG),
        help="format of the tables (%(default)s; KOHORT_FORMAT)",
    )
    parser.add_argument(
        "--catalog",
        default=_environment("CATALOG"),
        type=_namespace,
        metavar="NAME.NAMESPACE",
        help="the catalog of the tables: for Iceberg as configured in PyIceberg, for Delta as "
        "configured in Spark, which registers them there (default: none; KOHORT_CATALOG)",
    )


def session_of(
    options: argparse.Namespace,
    name: str,
    *,
    java_options: str = "",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the requested session. Options of the command line override `conf`.

    Raises ReportedError.
    """
    spark = session.build(
        name,
        master=options.master,
        conf={**(conf or {}), **session.parse_conf(options.conf)},
        jars_directory=options.jars,
        java_options=java_options,
        with_s3=any(
            (getattr(options, name, None) or "").startswith(_S3) for name in ("lake", "checkpoints")
        ),
        log_level=options.log_level,
    )
    session.set_log_level(spark, options.log_level)
    session.fit_to_machine(spark)
    return spark


def kafka_of(options: argparse.Namespace) -> Kafka:
    """Return the cluster that the options name, without contacting it. Raises UsageError."""
    settings: dict[str, str] = {}
    if options.kafka_config is not None:
        settings |= _read_settings(Path(options.kafka_config))
    for text in options.kafka:
        settings |= [_setting(text, "--kafka")]
    return Kafka(options.bootstrap_server, settings, timeout_s=options.timeout)


def lake_of(options: argparse.Namespace, spark: SparkSession) -> Lake:
    """Return the lake that the options name. Raises ReportedError."""
    return open_lake(spark, options.lake, options.format, options.catalog)


def _read_settings(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"--kafka-config {path}: {error.strerror}") from error
    wanted = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return dict(_setting(line, f"--kafka-config {path}") for line in wanted)


def _setting(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.strip().removeprefix("kafka.")
    if not equals or not name:
        # The value may be a password, so it is not shown.
        raise UsageError(f"{option}: {name!r} is not NAME=VALUE")
    return name, value.strip()


def _environment(name: str, default: str | None = None) -> str | None:
    return os.environ.get(f"KOHORT_{name}") or default


def _namespace(text: str) -> Namespace:
    try:
        return Namespace.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def seconds(text: str) -> float:
    """Argument type: a duration above 0, up to a week."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    # Also rejects NaN, which is not above 0.
    if not 0 < value <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"must be a number above 0, up to {SECONDS_MAX}")
    return value


def _seconds_or_none(text: str) -> float:
    return 0.0 if text == "0" else seconds(text)


def positive(text: str) -> int:
    """Argument type: a count from 1."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError("must be a number from 1")
    return value
