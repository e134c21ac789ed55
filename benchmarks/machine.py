"""Where and what was measured, for the head of the table."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]


def describe() -> str:
    """Two lines: the commit, and the machine."""
    commit = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = " with uncommitted changes" if _git("status", "--porcelain") else ""
    return (
        f"Kohort {_version()} at commit {commit}{changed}\n"
        f"{os.cpu_count()} x {_cpu()}, {_memory_gib():.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, {_java()}"
    )


def _version() -> str:
    try:
        return version("kohort")
    except PackageNotFoundError:
        return "(not installed)"


def _git(*arguments: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    done = subprocess.run(
        [git, "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "no Java"
    done = subprocess.run([java, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0] or "Java"
