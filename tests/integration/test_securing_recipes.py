"""The first three recipes of docs/securing-it.md, typed as they are written there.

What differs is where they are typed: broker.example.com is this machine, ports are free ones,
/var/lib/kohort is a directory of the test's, and the `...` of a password is a password.
"""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.brokers.server_process import free_port
from tests.support.processes.java_env import missing
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "securing-it.md").read_text(encoding="utf-8")
PASSWORD: Final = "correct horse"
WITHIN_S: Final = 120
HOST: Final = "broker.example.com"

RESOLVER: Final = f"""
import socket

_real = socket.getaddrinfo


def getaddrinfo(host, *arguments, **others):
    return _real("127.0.0.1" if host == "{HOST}" else host, *arguments, **others)


socket.getaddrinfo = getaddrinfo
"""
"""What a line in /etc/hosts would do, for this test alone."""


def recipe(title: str) -> str:
    """A section of the page."""
    found = re.search(rf"^## {title}$(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


class Desk:
    """A directory and a terminal in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shown = ""
        """What the terminal has shown."""
        self.changes = {
            "9092": str(free_port()),
            "9093": str(free_port()),
            "/var/lib/kohort": str(directory / "var-lib-kohort"),
            'password="..."': f'password="{PASSWORD}"',
        }
        """What is written here in the place of what the page has."""
        self.shell = ["bash"]
        own = directory / "own"
        (own / "bin").mkdir(parents=True)
        (own / "sitecustomize.py").write_text(RESOLVER)
        command = own / "bin" / "kohort"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kohort.cli "$@"\n')
        command.chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{own / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": f"{own}:{ROOT}",
            "KOHORT_METRICS_PORT": "-1",
            "KOHORT_CONSOLE_PORT": "-1",
        }

    def here(self, text: str) -> str:
        """The text with what is another in this place."""
        for written, meant in self.changes.items():
            text = text.replace(written, meant)
        return text

    def save(self, name: str, text: str) -> None:
        """Save a file as a reader of the page would."""
        (self.directory / name).write_text(self.here(text))

    @contextmanager
    def typed(self, *lines: str) -> Iterator[None]:
        """Type shell blocks, and passwords where they are asked for.

        The context begins when the last command has ended; what runs in the background goes on
        until its end.
        """
        done = self.directory / "done"
        done.unlink(missing_ok=True)
        script = "\n".join([*map(self.here, lines), f"touch '{done}'", "wait"])
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.directory)
            os.execvpe(self.shell[0], [*self.shell, "-euc", script], self.environment)
        try:
            self._attend(terminal, done)
            yield
        finally:
            os.killpg(pid, signal.SIGTERM)
            os.close(terminal)
            os.waitpid(pid, 0)

    def _attend(self, terminal: int, done: Path) -> None:
        ends_s = time.monotonic() + WITHIN_S
        answered = 0
        while not done.exists():
            assert time.monotonic() < ends_s, self.shown
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                self.shown += os.read(terminal, 65_536).decode()
            except OSError:
                pytest.fail(f"the shell has ended:\n{self.shown}")
            asked = len(re.findall(r"(?:New password|Once more): ", self.shown))
            for _ in range(asked - answered):
                os.write(terminal, f"{PASSWORD}\n".encode())
            answered = asked

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """One command of ours, beside the recipe."""
        return subprocess.run(
            ["kohort", *map(self.here, arguments)],
            check=False,
            capture_output=True,
            cwd=self.directory,
            env=self.environment,
            input=given,
            text=True,
            timeout=WITHIN_S,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    for program in ("openssl", "bash"):
        if shutil.which(program) is None:
            missing(f"{program} is not installed")
    return Desk(tmp_path)


def test_one_laptop(desk: Desk) -> None:
    section = recipe("One laptop")
    (shell,), (client,) = blocks(section, "sh"), blocks(section, "properties")
    desk.save("client.properties", client)
    # `kohort serve` is left running, in a terminal of its own.
    with desk.typed(shell.rstrip() + " &"):
        # What waits for it is its own business here: it has a terminal to look at.
        where = ("--bootstrap-server", "localhost:9092", "--wait", "60")
        made = desk.run("topics", "create", "t", *where, "--command-config", "client.properties")
        assert (made.returncode, made.stdout) == (0, "t: created\n"), made.stderr + desk.shown
        refused = desk.run("topics", "list", "--bootstrap-server", "localhost:9092")
        assert refused.returncode == 3


def test_tls_and_scram(desk: Desk) -> None:
    section = recipe("TLS and SCRAM")
    certificates, commands = blocks(section, "sh")
    server, admin, _ = blocks(section, "properties")
    desk.save("server.properties", server)
    desk.save("admin.properties", admin)
    desk.save("orders.properties", admin.replace('username="admin"', 'username="orders"'))
    with desk.typed(certificates, commands):
        where = ("--bootstrap-server", f"{HOST}:9093", "--command-config")
        listed = desk.run("topics", "list", *where, "admin.properties")
        assert "orders" in listed.stdout.split(), listed.stderr
        rules = desk.run("acl", "list", *where, "admin.properties")
        assert "orders" in rules.stdout, rules.stderr
        for command in ("groups", "transactions", "users"):
            assert desk.run(command, "list", *where, "admin.properties").returncode == 0
        own = (*where, "orders.properties")
        assert desk.run("produce", "orders", *own, given="one\n").returncode == 0
        assert desk.run("topics", "create", "more", *own).returncode == 4
        assert desk.run("produce", "more", *own, given="one\n").returncode != 0
        desk.save("stranger.properties", admin.replace("...", "guessed"))
        assert desk.run("topics", "list", *where, "stranger.properties").returncode == 4
    assert (desk.directory / "broker.pem").stat().st_mode & 0o777 == 0o600
    assert (desk.directory / "var-lib-kohort").stat().st_mode & 0o777 == 0o700


def test_mutual_tls(desk: Desk) -> None:
    above, section = recipe("TLS and SCRAM"), recipe("Mutual TLS")
    (certificate,) = blocks(section, "sh")
    of_server, of_client = blocks(section, "properties")
    # As above, and: what is said last of a setting holds.
    settings = dict(
        line.split("=", 1)
        for line in (blocks(above, "properties")[0] + of_server).splitlines()
        if line
    )
    desk.save("server.properties", "".join(f"{name}={text}\n" for name, text in settings.items()))
    desk.save("orders.properties", of_client)
    # Only it has any rights, so what it may do shows who it is.
    serve = "kohort serve --config server.properties --override super.users=User:orders &"
    where = ("--bootstrap-server", f"{HOST}:9093", "--command-config")
    with desk.typed(blocks(above, "sh")[0], certificate, serve):
        made = desk.run("topics", "create", "t", "--wait", "60", *where, "orders.properties")
        assert (made.returncode, made.stdout) == (0, "t: created\n"), made.stderr + desk.shown
        desk.save("nobody.properties", of_client.split("ssl.keystore")[0])
        assert desk.run("topics", "list", *where, "nobody.properties").returncode == 3


def test_a_command_waits_for_a_broker_as_long_as_it_is_told(desk: Desk) -> None:
    where = ("--bootstrap-server", "localhost:9092")
    began_s = time.monotonic()
    assert desk.run("topics", "list", *where, "--wait", "3").returncode == 3
    assert time.monotonic() - began_s >= 2.5
    waiting = subprocess.Popen(
        ["kohort", *map(desk.here, ("topics", "list", *where, "--wait", "100"))],
        cwd=desk.directory,
        env=desk.environment,
        text=True,
        stderr=subprocess.PIPE,
    )
    time.sleep(1)
    assert waiting.poll() is None
    with desk.typed("kohort serve --override listeners=PLAINTEXT://localhost:9092 &"):
        wait_until(lambda: waiting.poll() is not None, "the command to end")
        assert waiting.communicate()[1] == ""
        assert waiting.returncode == 0
