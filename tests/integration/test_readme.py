"""What the README tells a newcomer to do works as it is written there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from kohort.broker.config import load
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.processes.java_env import missing

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BROKER = "localhost:9092"
METRICS = "localhost:9308"


def blocks(language: str) -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands(word: str) -> list[str]:
    """The lines of shell blocks that use a command."""
    return [line for block in blocks("sh") for line in block.splitlines() if word in line.split()]


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, metrics_port: int) -> Iterator[KohortServer]:
    settings = {"kohort.metrics.port": str(metrics_port)}
    with KohortServer(tmp_path_factory.mktemp("readme"), overrides=settings) as running:
        yield running


@pytest.fixture
def greetings(server: KohortServer) -> str:
    """Output of the first lines that a newcomer types."""
    if shutil.which("kcat") is None:
        missing("kcat is not installed")
    typed = "\n".join(commands("kcat")).replace(BROKER, server.bootstrap)
    ran = subprocess.run(
        ["bash", "-euc", typed], check=False, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def run_example(server: KohortServer) -> list[str]:
    (example,) = blocks("python")
    ran = subprocess.run(
        [sys.executable, "-c", example.replace(BROKER, server.bootstrap)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_the_lines_with_kcat_write_and_read_a_record(greetings: str) -> None:
    assert len(commands("kcat")) == 2
    assert "hello" in greetings.splitlines()


def test_the_lines_with_kohort_write_and_read_a_record(server: KohortServer) -> None:
    lines = [*commands("produce"), *commands("consume")]
    assert len(lines) == 2
    ours = rf"{sys.executable} -m kohort.cli \1 --bootstrap-server {server.bootstrap}"
    typed = "\n".join(re.sub(r"kohort (produce|consume)", ours, line) for line in lines)
    ran = subprocess.run(
        ["bash", "-euc", typed], check=False, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert "hello" in ran.stdout.splitlines()


def test_the_python_example_goes_on_where_it_was(server: KohortServer) -> None:
    first, second = run_example(server), run_example(server)

    assert first[-1].endswith("hello from asyncio")
    assert len(second) == 1
    assert int(second[0].split()[0]) == int(first[-1].split()[0]) + 1


def test_the_metrics_are_where_the_readme_says(server: KohortServer, metrics_port: int) -> None:
    run_example(server)
    (line,) = commands("curl")
    url = "http://" + line.split()[-1].replace(METRICS, f"127.0.0.1:{metrics_port}")

    with urlopen(url, timeout=30) as answer:
        text = answer.read().decode()

    assert 'kafka_consumergroup_lag{consumergroup="readers",topic="greetings"' in text
    for probe in re.findall(r"`(/-/\w+)`", README):
        with urlopen(f"http://127.0.0.1:{metrics_port}{probe}", timeout=30) as answer:
            assert answer.status == 200


def test_the_group_of_the_example_can_be_asked_why_it_rebalanced(
    server: KohortServer, metrics_port: int, tmp_path: Path
) -> None:
    run_example(server)
    asked = {line for line in commands("kohort") if line.startswith("kohort groups ")}
    assert asked == {"kohort groups why readers", "kohort groups report readers"}

    def answer(line: str) -> str:
        arguments = [*line.split()[1:], "--http", f"http://127.0.0.1:{metrics_port}"]
        ran = subprocess.run(
            [sys.executable, "-m", "kohort.cli", *arguments],
            check=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return ran.stdout

    told = {line: answer(line) for line in asked}
    assert "<html" in (tmp_path / "readers.html").read_text(encoding="utf-8")
    times = r"at \d\d:\d\d:\d\d, generation \d+ -> \d+"
    form = rf"^Group readers rebalanced {times}, because member \S+ \(host"
    assert re.search(form, README, re.MULTILINE)
    assert re.search(form, told["kohort groups why readers"], re.MULTILINE)


def test_the_addresses_are_the_defaults() -> None:
    config = load(environment={}).config

    assert [f"{one.host}:{one.port}" for one in config.listener_endpoints] == [BROKER]
    assert f"{config.kohort_metrics_host}:{config.kohort_metrics_port}" == METRICS
    assert str(config.data_directory) == "data"


def test_the_examples_of_settings_are_accepted(tmp_path: Path) -> None:
    table = README.partition("| Source | Example |")[2].partition("\n\n")[0]
    overrides = re.findall(r"--override (\S+=\S+)`", table)
    variables = dict(re.findall(r"`((?:KAFKA|KOHORT)_\w+)=(\w+)`", table))
    file = tmp_path / "server.properties"
    flushes = re.findall(r"`(log\.flush\.interval\.\w+=\w+)`", README)
    file.write_text("\n".join(sorted({one.replace("=N", "=100") for one in flushes})))

    loaded = load(file=file, overrides=overrides, environment=variables)

    assert loaded.config.num_partitions == 3
    assert loaded.config.kohort_metrics_port == 9400
    assert not loaded.ignored
    assert not loaded.warnings


def test_the_command_is_installed_under_the_name_in_the_readme() -> None:
    kohort = Path(sys.executable).with_name("kohort")
    if not kohort.exists():
        pytest.skip("the distribution is not installed here")

    ran = subprocess.run(
        [kohort, "serve", "--help"], check=True, capture_output=True, text=True, env=os.environ
    )

    assert {"--override", "--config"} <= set(re.findall(r"--\w+", ran.stdout))
