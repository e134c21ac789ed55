"""The C library's free memory goes back to the system."""

import json
import subprocess
import sys

import pytest

MUCH_IS_FREED = """
import json
from tests.support.measures.memory import resident_kib
from kohort.broker.runtime.memory.reclaimer import return_free_memory, limit_retained_memory

limit_retained_memory()
# Blocks that are the C library's, and not mappings of their own.
much = [bytes(2_000) for _ in range(20_000)]
last = bytes(2_000)
sizes = [resident_kib()]
del much
return_free_memory()
sizes.append(resident_kib())
print(json.dumps(sizes))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_what_is_free_below_something_that_stays_goes_back() -> None:
    output = subprocess.run(
        [sys.executable, "-c", MUCH_IS_FREED], check=True, stdout=subprocess.PIPE
    )
    full, given_back = json.loads(output.stdout)
    assert full - given_back > 30_000, "KiB, of 40,000"
