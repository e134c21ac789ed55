from kohort.client.core.backoff import Backoff, Backoffs


def test_waits_double_up_to_the_limit() -> None:
    backoff = Backoff(100, 1000, lambda: 0.5)
    assert [backoff.fail() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]


def test_the_jitter_is_a_fifth_each_way() -> None:
    assert Backoff(100, 1000, lambda: 0.0).fail() == 80
    assert Backoff(100, 1000, lambda: 0.9999).fail() == 119


def test_failing_for_years_does_not_hurt() -> None:
    backoff = Backoff(100, 1000, lambda: 0.5)
    backoff.failure_count = 10**9
    assert backoff.fail() == 1000


def test_of_several_each_has_its_own_backoff() -> None:
    backoffs: Backoffs[str] = Backoffs(100, 1000, lambda: 0.5)
    assert [backoffs.fail(key) for key in ("a", "a", "b", "a")] == [100, 200, 100, 400]
    backoffs.succeed("a")
    backoffs.succeed("c")
    assert [backoffs.fail(key) for key in ("a", "b")] == [100, 200]
    backoffs.keep_only({"b"})
    assert [backoffs.fail(key) for key in ("a", "b")] == [100, 400]
