"""``kohort pipeline``: Spark jobs over topics and over the rebalance history.

Exit codes: 0; 1 if the job failed; 2 if the command line is invalid; 3 if a broker, Java or disk
space is missing.
"""

import argparse
import importlib
import importlib.util
import sys
from typing import Any, Final, NoReturn

from kohort.cli.commands import Parser
from kohort.insight.errors import ReportedError
from kohort.pipeline.errors import UnavailableError

COMMANDS: Final = {
    "land": ("topics into tables, exactly once", "kohort.pipeline.jobs.land"),
    "rebalances": ("the history of rebalances into tables", "kohort.pipeline.jobs.rebalances"),
    "advise": ("which settings would have avoided rebalances", "kohort.pipeline.jobs.advise"),
    "report": (
        "why groups rebalanced and what to change, as a page",
        "kohort.pipeline.jobs.report",
    ),
    "tidy": ("compact small files, delete old ones", "kohort.pipeline.jobs.tidy"),
    "convert-log": (
        "convert the log of a Kafka broker to a rebalance history; needs neither Spark nor Java",
        "kohort.insight.convert_log",
    ),
    "jars": ("download the jars that Spark needs to read Kafka", "kohort.pipeline.jobs.jars"),
    "py-files": (
        "write an archive of Kohort for Spark executors; needs neither Spark nor Java",
        "kohort.pipeline.jobs.py_files",
    ),
}
"""Each job's summary and module. The module has `add_arguments(parser)` and `run(options)`, which
raises ReportedError."""

NEEDS: Final = ("pyspark", "delta", "deltalake", "pandas", "pyarrow")
"""Packages of the extra `spark`."""

WITHOUT_EXTRA: Final = frozenset({"kohort.insight.convert_log", "kohort.pipeline.jobs.py_files"})
"""Modules that do not need the extra `spark`."""


class _Command(Parser):
    """Imports its job's module only when called; the module then adds the arguments."""

    module: str | None = None

    def parse_known_args(self, *given: Any, **more: Any) -> Any:  # noqa: ANN401 - argparse's.
        if self.module is not None:
            name, self.module = self.module, None
            try:
                job = _load(name)
            except ReportedError as error:
                _end(error)
            job.add_arguments(self)
            self.set_defaults(run=lambda options: _run(job, options))
        return super().parse_known_args(*given, **more)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0; 1 the job failed; 2 usage; 3 a broker, Java or disk space is missing."
    )
    commands = parser.add_subparsers(
        dest="pipeline_command", required=True, metavar="COMMAND", parser_class=_Command
    )
    for name, (summary, module) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, epilog=parser.epilog)
        command.module = module


def _load(module: str) -> Any:  # noqa: ANN401 - a module of the table above.
    needed = () if module in WITHOUT_EXTRA else NEEDS
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UnavailableError(
            f"the pipeline needs {', '.join(missing)}, which the extra installs: "
            "pip install 'kohort[spark]'"
        )
    return importlib.import_module(module)


def _run(job: Any, options: argparse.Namespace) -> int:  # noqa: ANN401 - as above.
    try:
        code: int = job.run(options)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # If Spark's JVM has ended, the error is only a consequence.
        if (how := _jvm_ended(error)) is not None:
            return _print_error(
                UnavailableError(
                    f"Spark's JVM has ended ({how}) during the job. The kernel kills it by signal "
                    "9 when memory is short; --conf spark.driver.memory=... limits its memory. The"
                    " next run repeats what was not finished."
                )
            )
        if isinstance(error, ReportedError):
            return _print_error(error)
        raise
    return code


def _jvm_ended(error: Exception) -> str | None:
    """How Spark's JVM ended; None if it has not, or was never started."""
    if "pyspark" not in sys.modules:
        return None
    jvm = importlib.import_module("kohort.pipeline.jvm")
    how: str | None = jvm.ended(error)
    return how


def _end(error: ReportedError) -> NoReturn:
    sys.exit(_print_error(error))


def _print_error(error: ReportedError) -> int:
    print(f"kohort: {error}", file=sys.stderr)
    return error.exit_code
