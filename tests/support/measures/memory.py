"""Memory of this process."""

from pathlib import Path


def resident_kib() -> int:
    """Return the resident set size."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")
