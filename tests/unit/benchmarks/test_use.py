"""What commands are seen to use."""

import subprocess
import sys
import time

from benchmarks.use import Use

_WORK = "held = bytearray(150 << 20); sum(range(5_000_000)); input()"
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_WORK!r}])"


def test_memory_and_processor_time_of_a_child_of_the_command_are_its_own() -> None:
    process = subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE)
    assert process.stdin is not None
    use = Use(process.pid)
    try:
        until = time.monotonic() + 60
        while not (use.mib > 150 and use.processor_s > 0.05) and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        process.stdin.close()
        process.wait()
    assert 150 < use.mib < 1_000
    assert 0.05 < use.processor_s < 60
