"""Where a broker's time goes: py-spy beside it, and the functions that were seen most often.

py-spy looks at the process a hundred times a second from outside, which costs the process a few per
cent. Its files are read by https://speedscope.app, or by any other viewer of that format.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

TOP: Final = 12
_PER_S: Final = 200
_WAITING: Final = {"_worker", "wait"}
"""Threads of an executor that have nothing to do, which py-spy takes for busy."""


class Profiler:
    """Watches one process from now until it ends."""

    def __init__(self, pid: int, output: Path) -> None:
        beside = Path(sys.executable).with_name("py-spy")
        command = str(beside) if beside.exists() else shutil.which("py-spy")
        if command is None:
            raise RuntimeError("py-spy is not installed (pip install py-spy)")
        output.parent.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [command, "record", "--pid", str(pid), "--format", "speedscope", "--rate", str(_PER_S),
             "--duration", "unlimited", "--output", str(output)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def finish(self) -> None:
        """To be called when the process has ended: waits until the file is written."""
        self._process.wait(60)


def summary(directory: Path) -> Iterator[str]:
    """For each file in `directory` the functions with the most time of their own."""
    for path in sorted(directory.glob("*.json")):
        own, total = times(json.loads(path.read_text(encoding="utf-8")))
        all_s = sum(own.values())
        yield f"{path}: {all_s:.1f} s of work"
        for frame, seconds in own.most_common(TOP):
            with_callees = total[frame] / all_s
            yield f"  {seconds / all_s:6.1%} itself, {with_callees:6.1%} with callees: {frame}"


def times(document: Mapping[str, Any]) -> tuple[Counter[str], Counter[str]]:
    """Sum up a speedscope document: seconds by function, without and with callees."""
    names = [_name(frame) for frame in document["shared"]["frames"]]
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for thread in document["profiles"]:
        for stack, seconds in zip(thread["samples"], thread["weights"], strict=True):
            if stack and names[stack[-1]].partition(" ")[0] not in _WAITING:
                own[names[stack[-1]]] += seconds
                total.update(dict.fromkeys({names[frame] for frame in stack}, seconds))
    return own, total


def _name(frame: dict[str, str]) -> str:
    return f"{frame['name']} ({frame.get('file', '?')})"
