"""Commands of ours as their users run them, in a process of their own or in the test's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, AnyStr, Generic, NamedTuple

import pytest

from kohort.cli import main

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120


class Said(NamedTuple, Generic[AnyStr]):
    """What a command has printed, and how it ended."""

    code: int
    out: AnyStr
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401
        """What `--json` has printed of a command that did well."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[AnyStr]:
        """What a command has printed that did well."""
        assert self.code == 0, self.err
        return self.out.splitlines()


def said_by_process(*arguments: str, **environment: str) -> Said[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "kohort.cli", *arguments],
        check=False,
        cwd=ROOT,
        env={**os.environ, "TZ": "UTC", **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert "Traceback" not in ran.stderr
    return Said(ran.returncode, ran.stdout, ran.stderr)


def said_here(printed: pytest.CaptureFixture[AnyStr], *arguments: str) -> Said[AnyStr]:
    """Run `kohort ARGUMENTS` in this process, whose output `printed` catches."""
    printed.readouterr()
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = printed.readouterr()
    return Said(code, out, os.fsdecode(err))


@contextmanager
def password_descriptor(password: str) -> Iterator[str]:
    """Give the password to a command in a pipe: the number for its `--password-fd`."""
    read, write = os.pipe()
    os.write(write, f"{password}\n".encode())
    os.close(write)
    try:
        yield str(read)
    finally:
        os.close(read)


def users_here(*arguments: str, password: str | None = None) -> int:
    """Run `kohort users ARGUMENTS` in this process; returns its exit code."""
    if password is None:
        return main(["users", *arguments])
    with password_descriptor(password) as number:
        return main(["users", *arguments, "--password-fd", number])
