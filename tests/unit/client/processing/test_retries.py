import random

from kohort.client.processing.options import RetryRules

PLAIN = RetryRules(retries=4, backoff_ms=100, backoff_max_ms=500, jitter=0.0)


def test_waits_double_up_to_their_limit_and_end() -> None:
    waits = [PLAIN.wait_ms(failed, random.random) for failed in range(1, 6)]
    assert waits == [100, 200, 400, 500, None]


def test_without_a_number_of_retries_they_never_end() -> None:
    rules = RetryRules(retries=None, backoff_ms=1, backoff_max_ms=60_000, jitter=0.0)
    assert rules.wait_ms(10_000, random.random) == 60_000


def test_jitter_stays_within_its_share() -> None:
    rules = RetryRules(retries=1, backoff_ms=1_000, backoff_max_ms=1_000, jitter=0.2)
    assert rules.wait_ms(1, lambda: 0.0) == 800
    assert rules.wait_ms(1, lambda: 0.999_999) == 1_199
