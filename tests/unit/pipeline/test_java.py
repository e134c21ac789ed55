"""What a process says on standard error comes through, but for what is no news."""

import subprocess
import sys
import time

import pytest

from kohort.pipeline.java import without_java_warnings


def test_only_the_noise_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    says = "import sys; sys.stderr.write('WARNING: Using incubator modules: x\\nnews\\n')"
    with without_java_warnings():
        process = subprocess.Popen([sys.executable, "-I", "-c", says])
    assert process.wait() == 0
    heard = ""
    deadline = time.monotonic() + 60
    while "news" not in heard and time.monotonic() < deadline:
        heard += capfd.readouterr().err
        time.sleep(0.01)
    assert heard == "news\n"
    # And this process has its own again.
    print("mine", file=sys.stderr)
    assert capfd.readouterr().err == "mine\n"
