from random import Random

from kohort.broker.storage.checkpoints.clean_shutdown import (
    mark_clean_shutdown,
    take_clean_shutdown_mark,
)
from kohort.testing.simulated_filesystem import SimulatedFileSystem


def new_directory() -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    files.make_directory("/data")
    return files


def test_the_mark_is_taken_once() -> None:
    files = new_directory()
    assert not take_clean_shutdown_mark(files, "/data")
    mark_clean_shutdown(files, "/data")
    assert take_clean_shutdown_mark(files, "/data")
    assert not take_clean_shutdown_mark(files, "/data")


def test_a_mark_survives_a_power_loss_and_a_taken_one_does_not_come_back() -> None:
    for seed in range(20):
        files = new_directory()
        mark_clean_shutdown(files, "/data")
        files.lose_power(Random(seed).randrange)
        assert take_clean_shutdown_mark(files, "/data")
        files.lose_power(Random(seed).randrange)
        assert not take_clean_shutdown_mark(files, "/data")
