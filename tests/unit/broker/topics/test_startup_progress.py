"""Progress and time left of verifying logs."""

from kohort.broker.topics.startup_progress import StartupProgress


class Clock:
    now_ms = 5_000

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_the_time_left_follows_from_the_bytes_verified_so_far() -> None:
    clock = Clock()
    progress = StartupProgress(clock)
    progress.begin_verifying({("a", 0): 300_000_000, ("a", 1): 100_000_000})
    assert progress.seconds_left() is None
    clock.now_ms += 10_000
    progress.verified(("a", 0), 100_000_000)
    assert 29 <= (progress.seconds_left() or 0) <= 31
    # More than was expected of the partition, then less.
    progress.verified(("a", 0), 900_000_000)
    progress.finish(("a", 0))
    assert (progress.partitions_verified, progress.bytes_verified) == (1, 300_000_000)
    progress.finish(("a", 1))
    assert (progress.partitions_verified, progress.bytes_verified) == (2, 400_000_000)
    assert progress.seconds_left() == 0


def test_partitions_opened_after_the_start_do_not_count() -> None:
    progress = StartupProgress(Clock())
    progress.begin_verifying({})
    progress.verified(("new", 0), 1_000)
    assert progress.bytes_verified == 0
