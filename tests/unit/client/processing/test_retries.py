import random

from kohort.client.processing.options import RunOptions

PLAIN = RunOptions(retries=4, retry_backoff_ms=100, retry_backoff_max_ms=500, retry_jitter=0)


def test_waits_double_up_to_their_limit_and_end() -> None:
    waits = [PLAIN.wait_ms(failed, random.random) for failed in range(1, 6)]
    assert waits == [100, 200, 400, 500, None]


def test_without_a_number_of_retries_they_never_end() -> None:
    options = RunOptions(retries=None, retry_backoff_max_ms=60_000, retry_jitter=0)
    assert options.wait_ms(10_000, random.random) == 60_000


def test_jitter_stays_within_its_share() -> None:
    options = RunOptions(retry_backoff_ms=1_000, retry_jitter=0.2)
    assert options.wait_ms(1, lambda: 0.0) == 800
    assert options.wait_ms(1, lambda: 0.999_999) == 1_199
