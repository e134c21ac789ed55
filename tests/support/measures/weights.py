"""Weights of processes, on a machine that has more to do than cores: what makes the load waits for
what is measured, so that the clock says something of the latter.

Linux weighs sessions against each other before it weighs their processes, so a niceness alone does
nothing between two terminals, or between a test and what it started with `setsid`.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

LOWEST: Final = 19
HIGHEST: Final = -20


def weigh(pid: int, niceness: int) -> bool:
    """Set the weight of a process that leads a session of its own, and of all in that session.

    Returns False where this user may not, and nothing has changed.
    """
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)
    except PermissionError:
        return False
    # A kernel without weights of sessions has no such file.
    with suppress(FileNotFoundError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
    return True
