"""The example for Airflow: its tasks are commands that there are. Airflow itself is not needed."""

import re
import runpy
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from kohort.cli import pipeline
from kohort.cli.commands import Parser

EXAMPLE = Path(__file__).parents[3] / "examples" / "airflow" / "rebalance_report.py"


class Dag:
    """A DAG as far as the example uses it."""

    def __init__(self, **settings: object) -> None:
        self.settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class Task:
    """A task that remembers its command, and the task behind it."""

    def __init__(self, *, task_id: str, bash_command: str) -> None:
        self.task_id, self.bash_command = task_id, bash_command
        self.following: list[str] = []

    def __rshift__(self, other: "Task") -> "Task":
        self.following.append(other.task_id)
        return other


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    standing_in: dict[str, dict[str, object]] = {
        "airflow": {},
        "airflow.sdk": {"DAG": Dag},
        "airflow.providers": {},
        "airflow.providers.standard": {},
        "airflow.providers.standard.operators": {},
        "airflow.providers.standard.operators.bash": {"BashOperator": Task},
    }
    for name, contents in standing_in.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(EXAMPLE))


def test_its_tasks_are_commands_in_the_order_in_which_they_build_on_each_other(
    example: dict[str, Any],
) -> None:
    pytest.importorskip("pyspark")
    parser = Parser(prog="kohort pipeline")
    pipeline.add_arguments(parser)
    for name, following in (("rebalances", ["advise"]), ("advise", ["report"]), ("report", [])):
        task = example[name]
        assert (task.task_id, task.following) == (name, following)
        command = re.sub(r"\{\{ var\.value\.get\('\w+', '([^']+)'\) \}\}", r"\1", task.bash_command)
        kohort, room, *arguments = shlex.split(command)
        assert (kohort, room, arguments[0]) == ("kohort", "pipeline", name)
        options = parser.parse_args(arguments)
        assert options.lake == "/srv/lake"
