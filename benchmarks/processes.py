"""What the kernel tells about a process: processor time and memory."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_NICER: Final = 10


def cpu_s(pid: int) -> float:
    """Processor time used so far, of all threads, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def resident_mib(pid: int) -> float:
    """Memory in use, shared libraries included."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} is gone")


def stand_for_other_machines(niceness: int = _NICER) -> None:
    """Leave the processor to all other processes: this one's clients would have their own.

    Linux weighs sessions against each other before it weighs their processes.
    """
    os.setsid()
    os.nice(niceness)
    # Kernels without CONFIG_SCHED_AUTOGROUP have no such file.
    with suppress(FileNotFoundError):
        Path("/proc/self/autogroup").write_text(str(niceness), encoding="utf-8")
