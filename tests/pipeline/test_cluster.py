"""All jobs by spark-submit on a cluster of two workers, whose executors have an archive alone."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.pipeline import jars
from tests.pipeline.spark_settings import JARS, JAVA_OPTIONS
from tests.pipeline.topics import Topics
from tests.support.brokers.kohort_server import KohortServer
from tests.support.processes.spark_cluster import Cluster, spark_home

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "kohort" / "cli" / "__main__.py"
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}
"""Tables of a hundred rows: what makes code for large ones costs minutes of the report alone."""

LAUNCHER_LINES_MAX = 8
"""Lines of Spark's own at its start and end; there were ninety."""


def bare_python(directory: Path) -> Path:
    """An interpreter with the packages of this one, but for those that are used where they lie, as
    Kohort is here.
    """
    script = directory / "python"
    packages = sysconfig.get_path("purelib")
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    script.chmod(0o755)
    found = subprocess.run(
        [str(script), "-c", "import pyarrow, kohort"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'kohort'" in found.stderr
    return script


@pytest.fixture
def cluster(spark_jars: Path, tmp_path: Path) -> Iterator[Cluster]:
    assert spark_jars == JARS
    found = Cluster(tmp_path)
    try:
        for _ in range(2):
            found.add_worker()
        yield found
    finally:
        found.close()


@pytest.mark.timeout(1_800)
@pytest.mark.long
def test_all_jobs_run_on_a_cluster_whose_executors_have_an_archive(
    cluster: Cluster, tmp_path: Path
) -> None:
    archive, lake = tmp_path / "kohort.zip", tmp_path / "lake"
    made = [sys.executable, "-m", "kohort.cli", "pipeline", "py-files", str(archive)]
    subprocess.run(made, cwd=ROOT, check=True, capture_output=True)
    bare = bare_python(tmp_path)
    listed = ",".join(str(JARS / jar.file_name) for jar in jars.locked())

    def submit(*arguments: str, with_archive: bool = True) -> tuple[int, str]:
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", cluster.url]
        command += ["--jars", listed, "--conf", "spark.ui.enabled=false"]
        command += ["--conf", "spark.executor.memory=512m", "--driver-memory", "1g"]
        for name, value in SETTINGS.items():
            command += ["--conf", f"{name}={value}"]
        if with_archive:
            command += ["--py-files", str(archive)]
        command += [str(MAIN), "pipeline", *arguments, "--lake", str(lake)]
        done = subprocess.run(
            command,
            # Not where Kohort's sources are: what executors import has to come with the archive.
            cwd=tmp_path,
            env=os.environ | {"PYSPARK_PYTHON": str(bare), "PYSPARK_DRIVER_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        # What the job itself tells is on standard output, and the last that is to be seen.
        return done.returncode, done.stderr + done.stdout

    week = ROOT / "examples" / "rebalance-week" / "week.jsonl.gz"
    code, told = submit("rebalances", "--from", str(week), "--cluster-id", "example")
    assert code == 0, told[-3000:]
    assert "findings of 3 groups renewed" in told
    # Without the archive it says what an executor lacks.
    advise = ("advise", "--topic", "", "--group", "billing")
    code, told = submit(*advise, with_archive=False)
    assert code == 1
    assert "a Python worker raised ModuleNotFoundError: No module named 'kohort'" in told
    code, told = submit(*advise)
    assert code == 0, told[-3000:]
    page = tmp_path / "report.html"
    code, told = submit("report", "--output", str(page))
    assert code == 0, told[-3000:]
    assert "billing" in page.read_text()
    with KohortServer(tmp_path / "broker") as server:
        topics = Topics(server.bootstrap)
        topic = topics.create(3)
        topics.produce(topic, 300, partitions=3)
        arguments = ("land", topic, "--available-now", "--bootstrap-server", server.bootstrap)
        code, told = submit(*arguments)
        assert code == 0, told[-3000:]
        assert "land: 300 rows in all" in told
    code, told = submit("tidy")
    assert code == 0, told[-3000:]
    # What the launcher says before the job's own process can speak to it.
    started = [text for text in told.splitlines() if " INFO " in text or " WARN " in text]
    assert len(started) <= LAUNCHER_LINES_MAX, started
    assert not (tmp_path / "spark-warehouse").exists()
