from kohort.client.core.backoff import Backoff


def test_waits_double_up_to_the_limit() -> None:
    backoff = Backoff(100, 1000, lambda: 0.5)
    assert [backoff.fail() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]


def test_a_success_begins_anew() -> None:
    backoff = Backoff(100, 1000, lambda: 0.5)
    backoff.fail()
    backoff.succeed()
    assert backoff.fail() == 100


def test_the_jitter_is_a_fifth_each_way() -> None:
    assert Backoff(100, 1000, lambda: 0.0).fail() == 80
    assert Backoff(100, 1000, lambda: 0.9999).fail() == 119


def test_failing_for_years_does_not_hurt() -> None:
    backoff = Backoff(100, 1000, lambda: 0.5)
    backoff.failure_count = 10**9
    assert backoff.fail() == 1000
