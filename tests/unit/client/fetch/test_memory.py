import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from kohort.client.fetch.fetcher import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = faults()
if {is_called}:
    keep_freed_memory()
called = faults()
for _ in range(50):
    block = bytearray(1 << 20)
    block = None
print(called - before, faults() - called)
"""
"""Prints how many pages the system has to give for the call, and for 50 blocks after each other."""


def page_faults(*, is_called: bool) -> tuple[int, int]:
    program = PROGRAM.format(is_called=is_called)
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE
    ).stdout
    call, blocks = map(int, output.split())
    return call, blocks


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc")
def test_freed_memory_is_kept_without_touching_any() -> None:
    call, blocks = page_faults(is_called=True)
    assert call < 100
    assert blocks < page_faults(is_called=False)[1]
