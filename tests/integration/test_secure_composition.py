"""The composition of docs/securing-it.md, without a container engine: its commands run with its
environment and its volumes, in a place that has what a container has and no more.

The place is made of the same parts as a container: file systems and a network of its own, whose
only address is 127.0.0.1 although its /etc/hosts has ::1, too. Its users and its files are those of
the machine: nothing is built, and the broker does not get a user of its own.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.integration.test_securing_recipes import HOST, PAGE, ROOT, Desk, blocks, recipe

COMPOSITION: Final = (ROOT / "deploy" / "secure" / "docker-compose.yml").read_text()
SERVICES: Final[dict[str, Any]] = yaml.safe_load(COMPOSITION)["services"]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()

HOSTS: Final = f"""\
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
127.0.0.1 {HOST}
"""
"""The file that a container engine writes, with the name that the page uses for the machine."""

NETWORK: Final = """
import fcntl, socket, struct
from pathlib import Path

for name in ("all", "default"):
    path = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
    if path.exists():
        path.write_text("1")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
"""
"""SIOCSIFFLAGS with IFF_UP and IFF_RUNNING: `ip link set lo up`, which may not be installed."""


def own_place() -> list[str]:
    """The beginning of a command that has file systems and a network of its own."""
    wanted = ["unshare", "--mount", "--net"]
    return wanted if os.geteuid() == 0 else [*wanted, "--user", "--map-root-user"]


class Container(Desk):
    """A terminal in such a place."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.changes = {'password="..."': self.changes['password="..."']}
        self.shell = [*own_place(), "bash"]
        own = directory / "own"
        python = own / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        self.save("own/hosts", HOSTS)
        self.save("own/network.py", NETWORK)
        self.environment = {"PATH": self.environment["PATH"], "PYTHONPATH": str(ROOT)}
        self.environment |= image_environment() | SERVICES["broker"]["environment"]

    def made(self, service: str) -> str:
        """Commands that make the place of a service."""
        lines = [
            "mount --make-rprivate /",
            "mount -t tmpfs tmpfs /var/lib",
            "mount -t tmpfs tmpfs /run",
            "mount --bind own/hosts /etc/hosts",
            "python own/network.py",
        ]
        for mount in SERVICES[service]["volumes"]:
            source, target, *options = mount.split(":")
            target = shlex.quote(target)
            if source.startswith("./"):
                lines += [f"mkdir -p $(dirname {target})", f"touch {target}"]
            else:
                lines += [f"mkdir -p {source} {target}", f"chmod 700 {source}"]
            lines.append(f"mount --bind {source} {target}")
            if options == ["ro"]:
                lines.append(f"mount -o remount,bind,ro {target}")
        return "\n".join(lines)


def image_environment() -> dict[str, str]:
    """Variables that the image sets, but for the path of its programs."""
    block = re.search(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    assert block
    found = dict(re.findall(r"(\w+)=(\S+)", block[1]))
    del found["PATH"]
    return found


def of_image(instruction: str) -> str:
    """A command of the image, for a shell."""
    found = re.search(rf"^{instruction} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found
    return shlex.join(json.loads(found[1]))


def user_command() -> str:
    """The command by which the head of the composition makes the first user."""
    found = re.search(
        r"^#   docker compose .* run --rm (broker-users) (.*)$", COMPOSITION, re.MULTILINE
    )
    assert found
    return f"{shlex.join(SERVICES[found[1]]['entrypoint'])} {found[2]}"


@pytest.fixture
def container(tmp_path: Path) -> Container:
    tried = subprocess.run(
        [*own_place(), "mount", "-t", "tmpfs", "tmpfs", "/run"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    return Container(tmp_path)


@pytest.mark.long
def test_the_composition_serves_what_the_page_says(container: Container) -> None:
    certificates, commands = blocks(recipe("TLS and SCRAM"), "sh")
    _, admin = blocks(recipe("TLS and SCRAM"), "properties")
    container.save("admin.properties", admin)
    container.save("orders.properties", admin.replace('username="admin"', 'username="orders"'))
    container.save("stranger.properties", admin.replace("...", "guessed"))
    first, serve, *others = commands.splitlines()
    # The composition has these two in its own way.
    assert first.startswith("kohort users add admin")
    assert serve.startswith("kohort serve")
    health = of_image(r"    CMD")
    where = f"--bootstrap-server {HOST}:9093 --command-config"
    with container.typed(
        certificates,
        container.made("broker"),
        user_command(),
        f"{of_image('ENTRYPOINT')} &",
        *others,
        f"for _ in $(seq 60); do {health} && break; sleep 0.5; done",
        f"{health} && touch healthy",
        f"kohort topics list {where} orders.properties > listed",
        f"kohort produce orders {where} orders.properties <<< one",
        f"kohort topics list {where} stranger.properties || echo $? > refused",
        "stat -c %a /var/lib/kohort/metadata.db > mode",
    ):
        pass
    here = container.directory
    assert (here / "healthy").exists(), container.shown
    assert "orders" in (here / "listed").read_text().split()
    assert (here / "refused").read_text() == "4\n"
    assert (here / "mode").read_text() == "600\n"
    assert (here / "broker-data" / "orders-0").is_dir()
    assert "deploy/secure/docker-compose.yml" in PAGE
