"""Every command that the pages show runs as it is written there, against a fresh broker.

What differs is where it is typed: ports are free ones, and /var/lib/kohort is the broker's data
directory. A command that never ends is stopped after some seconds. README.md and
securing-it.md have tests of their own; commands of containers, of services and of installation need
what a test machine lacks.
"""

import argparse
import gzip
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kohort.cli import whole_parser
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.processes.java_env import quick_jvm

ROOT: Final = Path(__file__).parents[2]
ELSEWHERE: Final = {"docker", "git", "kubectl", "make", "pip", "ssh", "venv"}
"""Programs whose lines are left out."""
OUR_PAGES: Final = sorted(
    path
    for path in (ROOT / "docs").glob("*.md")
    # Typed whole by test_securing_recipes; pages for machines with systemd and Kubernetes.
    if path.name not in {"securing-it.md", "upgrade.md", "kubernetes.md"}
)
ENDLESS: Final = (
    *("kohort testing serve", "kohort watch --bootstrap", "-o end"),
    "kafka-console-share-consumer.sh",
)
ENDLESS_FOR_S: Final = 15
PARSER: Final = whole_parser()
KAFKA_TOOLS: Final = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-share-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
}


class Command(NamedTuple):
    page: str
    text: str


def shell_blocks(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    fences = r"^ *```(?:sh|console)\n(.*?)^ *```$"
    for block in re.findall(fences, text, re.MULTILINE | re.DOTALL):
        yield block.replace("\\\n", " ")


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page in their order.

    In a block with prompts, the lines without one are output. A line that ends with a pipe goes on.
    """
    for block in shell_blocks(page):
        lines = re.sub(r"\|\n\s*", "| ", block).splitlines()
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        for line in prompted or lines:
            text = line.partition("  #")[0].strip()
            if not text or text.startswith("#") or not text[0].isalpha():
                continue
            if ELSEWHERE & set(re.findall(r"[\w-]+", text)) or "kafka-reassign" in text:
                continue
            yield Command(page.name, text)


def inline_commands(page: Path) -> Iterator[list[str]]:
    """The words of `kohort ...` within sentences and tables."""
    for text in re.findall(r"`kohort ([^`]+)`", page.read_text(encoding="utf-8")):
        yield re.split(r"[\s,]+", re.split(r" [|\\]", text)[0])


ALL_COMMANDS: Final = [command for page in OUR_PAGES for command in commands(page)]


OPEN_TRANSACTION: Final = """
import asyncio, os
from aiokafka import AIOKafkaProducer

async def main():
    address = os.environ["KOHORT_BOOTSTRAP_SERVER"]
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for _ in range(4711):
            await producer.send("orders", b"", partition=0)
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="payments-1")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"", partition=0)
    os._exit(0)

asyncio.run(main())
"""
"""A transaction that begins at offset 4711 and whose producer is gone."""


class Desk:
    """A directory, a broker with some topics and groups, and what is typed there."""

    def __init__(self, directory: Path, server: KohortServer, ports: dict[str, str]) -> None:
        self.directory = directory
        self.server = server
        restored = free_port()
        self.changes = {
            "localhost:9092": server.bootstrap,
            "kafka:9092": server.bootstrap,
            "localhost:9308": f"localhost:{ports['9308']}",
            "localhost:9328": f"localhost:{ports['9328']}",
            "localhost:19092": f"localhost:{restored}",
            "--port 19092": f"--port {restored}",
            "/var/lib/kohort": str(server.data),
            "/tmp/restored": str(directory / "restored"),
            "/srv/www": str(directory),
            "8475": str(free_port()),
            # Without it, only a transaction that the coordinator does not know is aborted.
            "abort orders 0 4711": "abort orders 0 4711 --force",
        }
        own = directory / "bin"
        own.mkdir()
        self._program(own / "kohort", [sys.executable, "-m", "kohort"])
        self._program(own / "python3", [sys.executable])
        for name, java_class in KAFKA_TOOLS.items():
            self._program(own / name, [*quick_jvm("tools"), java_class])
        self._environment = os.environ | {
            "PATH": f"{own}{os.pathsep}{os.environ['PATH']}",
            "KOHORT_BOOTSTRAP_SERVER": server.bootstrap,
            "KOHORT_HTTP": f"http://localhost:{ports['9308']}",
        }

    def _program(self, file: Path, command: list[str]) -> None:
        file.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        file.chmod(0o755)

    def as_typed(self, text: str) -> str:
        for old, new in self.changes.items():
            text = text.replace(old, new)
        return text

    def type(self, text: str, *, timeout_s: float = 240) -> tuple[int, str]:
        """The exit code and what was printed. What has not ended by then is stopped by SIGINT."""
        with self.begin(text) as running:
            try:
                printed, _ = running.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGINT)
                printed, _ = running.communicate(timeout=60)
                return 0, printed
            return running.returncode, printed

    def begin(self, text: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", self.as_typed(text)],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    ports = {"9308": str(free_port()), "9328": str(free_port())}
    settings = {
        "kohort.metrics.port": ports["9308"],
        "kohort.console.port": ports["9328"],
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "num.partitions": "2",
    }
    (tmp_path / "server.properties").write_text("num.partitions=6\n")
    (tmp_path / "admin.properties").write_text("security.protocol=PLAINTEXT\n")
    (tmp_path / "lines.txt").write_text("a:first\nb:second\n")
    with gzip.open(ROOT / "examples" / "rebalance-week" / "week.jsonl.gz") as week:
        (tmp_path / "week.jsonl").write_bytes(week.read())
    log = ROOT / "tests" / "unit" / "insight" / "broker_log" / "real" / "kafka-4.4.log"
    shutil.copy(log, tmp_path / "server.log")
    with gzip.open(tmp_path / "server.log.1.gz", "wb") as older:
        older.write(log.read_bytes())
    with KohortServer(tmp_path / "broker", overrides=settings) as server:
        there = Desk(tmp_path, server, ports)
        yield there


RECORDS: Final = ("seq 100 | kohort produce orders", "seq 9 | kohort produce greetings")
PREPARED: Final = {
    # The page creates its topic.
    "command-line.md": (),
    "advisor.md": (*RECORDS, "kohort pipeline rebalances --lake ./lake --from week.jsonl"),
    "report.md": (*RECORDS, "kohort pipeline rebalances --lake ./lake --from week.jsonl"),
    "backup-and-restore.md": (*RECORDS, "cp -a /var/lib/kohort /tmp/restored"),
    "exactly-once.md": (f"python3 -c {shlex.quote(OPEN_TRANSACTION)}",),
}
GROUPS: Final = tuple(
    f"kohort consume orders --group {group} --max-messages 10 >/dev/null"
    for group in ("billing", "readers", "billing")
)


def prepare(desk: Desk, page: str) -> None:
    texts = PREPARED.get(page, RECORDS)
    for text in (*texts, *GROUPS) if RECORDS[0] in texts else texts:
        code, printed = desk.type(text)
        assert code == 0, f"{text}\n{printed}"
    if page == "outgrowing-one-machine.md":
        desk.server.stop()


@pytest.mark.long
@pytest.mark.parametrize("page", sorted({command.page for command in ALL_COMMANDS}))
def test_every_command_of_a_page_does_what_the_page_says(desk: Desk, page: str) -> None:
    prepare(desk, page)
    failed = []
    with ExitStack() as servers:
        for command in ALL_COMMANDS:
            if command.page != page:
                continue
            if command.text.startswith("kohort serve"):
                # What follows is typed in another terminal.
                server = servers.enter_context(desk.begin(command.text))
                servers.callback(os.killpg, server.pid, signal.SIGTERM)
                desk.type(f"kohort status --wait 1m -b {desk.changes['localhost:19092']}")
                continue
            endless = any(words in command.text for words in ENDLESS)
            code, printed = desk.type(command.text, timeout_s=ENDLESS_FOR_S if endless else 240)
            if code or "Traceback" in printed:
                failed.append(f"$ {desk.as_typed(command.text)}\n{printed}exit code {code}")
            if "topics delete orders" in command.text:
                prepare(desk, "")
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize(
    "page",
    [*OUR_PAGES, ROOT / "README.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_commands_and_options_within_sentences_exist(page: Path) -> None:
    for words in inline_commands(page):
        parser: argparse.ArgumentParser = PARSER
        for word in words:
            nested = subcommands(parser)
            # Spark's jobs build their parsers when they run; COMMAND stands for any of them.
            if words[0] == "pipeline" or word.isupper():
                break
            if option := re.match(r"--[\w-]+", word):
                assert option[0] in parser._option_string_actions, words
            elif nested:
                assert word in nested, words
                parser = nested[word]


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {
        name: child
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, child in action.choices.items()
    }
