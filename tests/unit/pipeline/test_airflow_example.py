"""The example for Airflow: its tasks are commands that there are. Airflow itself is not needed."""

import re
import runpy
import shlex
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from kohort.cli import pipeline
from kohort.cli.commands import Parser

EXAMPLE = Path(__file__).parents[3] / "examples" / "airflow" / "rebalance_report.py"
OPERATORS = "airflow.providers.standard.operators.bash"


def test_its_tasks_are_commands_in_the_order_in_which_they_build_on_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark")
    parser = Parser(prog="kohort pipeline")
    pipeline.add_arguments(parser)
    airflow = MagicMock()
    parents = (OPERATORS.rsplit(".", count)[0] for count in range(5))
    for name in (*parents, "airflow.sdk"):
        monkeypatch.setitem(sys.modules, name, airflow)
    runpy.run_path(str(EXAMPLE))
    tasks = [call.kwargs for call in airflow.BashOperator.call_args_list]
    names = [task["task_id"] for task in tasks]
    assert names == ["rebalances", "advise", "report"]
    assert EXAMPLE.read_text().endswith(f"    {' >> '.join(names)}\n")
    for task in tasks:
        template = r"\{\{ var\.value\.get\('\w+', '([^']+)'\) \}\}"
        kohort, room, *arguments = shlex.split(re.sub(template, r"\1", task["bash_command"]))
        assert (kohort, room, arguments[0]) == ("kohort", "pipeline", task["task_id"])
        assert parser.parse_args(arguments).lake == "/srv/lake"
