"""librdkafka's own tests, built from the sources that Debian gives out, with HTTP by libcurl.

A line that is changed in them and cannot be found any more is an error, so that a test never runs
without what it is for.
"""

import os
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.interop.foreign.programs import CACHE, tool
from tests.interop.foreign.suites import change
from tests.support.processes import java_env

VERSION: Final = "2.8.0"
"""What the Debian release has from which its sources are."""

CHANGES: Final = [
    # No certificates of others: clients send them to ours, which cannot say whom it trusts.
    ("0097-ssl_verify.cpp", "untrusted_client_key <= 1;", "untrusted_client_key <= 0;"),
    # There is one broker.
    ("0126-oauthbearer_oidc.c", "topic, 1, 3,", "topic, 1, 1,"),
    ("0142-reauthentication.c", "topic, 1, 3,", "topic, 1, 1,"),
    # Tokens are an issuer's, who is told how long they are to last, and signed.
    ("0142-reauthentication.c", '"sasl.oauthbearer.config"', '"sasl.oauthbearer.scope"'),
    ("0142-reauthentication.c", 'unsecure.jwt", "true");', 'unsecure.jwt", "false");'),
    (
        "0142-reauthentication.c",
        f'unsecure.jwt",\n{30 * " "}"true");',
        f'unsecure.jwt",\n{30 * " "}"false");',
    ),
]
"""By file: what is there once, and what takes its place."""


def librdkafka_tests() -> Path:
    """The directory of librdkafka's tests, with their program."""
    sources = CACHE / "sources"
    # Other builds of it had no libcurl.
    place = sources / "with-libcurl" / f"librdkafka-{VERSION}"
    if not (place / "tests" / "test-runner").exists():
        shutil.rmtree(place, ignore_errors=True)
        _debian_sources("librdkafka", "trixie", sources)
        with tarfile.open(sources / f"librdkafka_{VERSION}.orig.tar.gz") as packed:
            packed.extractall(place.parent, filter="data")
        for name, old, new in CHANGES:
            change(place / "tests" / name, old, new)
        # Optimised it takes three times as long.
        plain = ["--disable-optimization", "--disable-gssapi", "--disable-lz4-ext"]
        configure = ["./configure", "--enable-curl", *_libcurl(), *plain]
        make = [tool("make", "make"), "-j2"]
        parts = ["src", "librdkafka.a"], ["src-cpp", "librdkafka++.a"], ["tests", "build"]
        for command in (configure, *([*make, "-C", *part] for part in parts)):
            subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)
    return place / "tests"


def _debian_sources(package: str, release: str, place: Path) -> None:
    """Downloads them from where this machine has its packages from."""
    apt = tool("apt-get", "apt-get")
    known = ["Created-By: Packages", "Origin: Debian", "Component: main"]
    targets = subprocess.run(
        [apt, "indextargets", "--format", "$(REPO_URI)", *known],
        check=True,
        capture_output=True,
        text=True,
    )
    where = next(line for line in targets.stdout.splitlines() if line.endswith("/debian/"))
    (place / "apt" / "partial").mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (place / "apt.list").write_text(f"deb-src [signed-by={keys}] {where} {release} main\n")
    options = {
        "Dir::Etc::sourcelist": place / "apt.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": place / "apt",
    }
    ours = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    subprocess.run([apt, *ours, "--quiet", "update"], check=True)
    subprocess.run([apt, *ours, "source", "--download-only", package], cwd=place, check=True)


def _libcurl() -> list[str]:
    """What to tell `configure` of where to find it: if it is not installed, what is needed to
    build with it is unpacked into the cache, and what runs is the library that the machine has.
    """
    if shutil.which("curl-config"):
        return []
    place = CACHE / "libcurl"
    (place / "apt" / "partial").mkdir(parents=True, exist_ok=True)
    apt = [tool("apt-get", "apt-get"), "--quiet", "-o", f"Dir::State::lists={place / 'apt'}"]
    subprocess.run([*apt, "update"], check=True)
    names = ["libcurl4-openssl-dev", "libcurl4"]
    subprocess.run([*apt, "download", *names], cwd=place, check=True)
    for package in place.glob("*.deb"):
        subprocess.run([tool("dpkg-deb", "dpkg-deb"), "-x", package, place], check=True)
    (headers,) = place.glob("usr/include/*/curl")
    (library,) = place.glob("usr/lib/*/libcurl.so")
    return [f"--CPPFLAGS=-I{headers.parent}", f"--LDFLAGS=-L{library.parent}"]


def run(
    tests: Path,
    name: str,
    directory: Path,
    settings: Mapping[str, str],
    *,
    part: str = "",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs the test of that number, or what has `part` in its name, as the client that `settings`
    describe; returns all that it says, once it has passed.
    """
    # What some of them call, where they look for it.
    command = directory / "bin" / "kafka-acls.sh"
    command.parent.mkdir()
    words = [*java_env.quick_jvm("tools"), "org.apache.kafka.tools.AclCommand"]
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o755)
    lines = {**settings, "test.timeout.multiplier": "4"}
    (directory / "test.conf").write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
    own = {
        "RDKAFKA_TEST_CONF": str(directory / "test.conf"),
        "KAFKA_PATH": str(directory),
        "TEST_KAFKA_VERSION": "4.0.0",
        "TESTS": name,
        **({"SUBTESTS": part} if part else {}),
        **(environment or {}),
    }
    found = subprocess.run(
        [tests / "test-runner", "-p1"],
        cwd=tests,
        env=os.environ | own,
        check=False,
        capture_output=True,
        text=True,
    )
    said = re.sub(r"\x1b\[[0-9;]*m", "", found.stdout + found.stderr)
    assert found.returncode == 0, said[-20_000:]
    # It ends as well for a test, or parts of it, that it has left out.
    assert re.search(rf"\| {name}_\w+ +\| +PASSED", said), said[-20_000:]
    assert not part or re.search(rf"{part}.*: PASS", said), said[-20_000:]
    return said
