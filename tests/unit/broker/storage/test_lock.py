import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.broker.storage.errors import DataDirectoryLockedError
from kohort.broker.storage.lock import DataDirectoryLock

HOLD = """
import sys
from pathlib import Path
from kohort.broker.storage.lock import DataDirectoryLock
lock = DataDirectoryLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_second_holder_is_refused_and_told_where_and_by_whom(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path):
        with pytest.raises(DataDirectoryLockedError) as caught:
            DataDirectoryLock(tmp_path)
        assert str(tmp_path) in str(caught.value)
        assert str(os.getpid()) in str(caught.value)
    DataDirectoryLock(tmp_path).release()


def test_a_killed_holder_leaves_nothing_to_clean_up(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DataDirectoryLockedError):
            DataDirectoryLock(tmp_path)
        holder.kill()
    DataDirectoryLock(tmp_path).release()


def test_releasing_twice_takes_nothing_from_the_next_holder(tmp_path: Path) -> None:
    """Whose lock may have the number of the descriptor that was closed."""
    lock = DataDirectoryLock(tmp_path)
    lock.release()
    next_holder = DataDirectoryLock(tmp_path)
    lock.release()
    with pytest.raises(DataDirectoryLockedError):
        DataDirectoryLock(tmp_path)
    next_holder.release()


def test_a_directory_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DataDirectoryLock(tmp_path / "missing")
