from kohort.client.core.backoff import OngoingFailure, OngoingFailures


def failed(*times_ms: int, is_refused: bool = True) -> OngoingFailures:
    failures = OngoingFailures()
    for at_ms in times_ms:
        failures.failed(ValueError(f"at {at_ms}"), at_ms, is_refused=is_refused)
    return failures


def test_what_failed_is_told_since_its_last_success() -> None:
    failures = failed(1_000, 4_000)
    assert failures.now(6_000) == OngoingFailure("at 4000", 2, 5.0, is_refused=True)
    failures.succeeded()
    assert failures.now(6_000) is None
    failures.failed(ValueError(), 7_000)
    assert failures.now(7_500) == OngoingFailure("ValueError()", 1, 0.5, is_refused=True)
    assert failures.total == 3


def test_what_is_refused_lasts_from_the_second_time_on() -> None:
    once, twice = failed(0).now(60_000), failed(0, 1).now(1)
    assert once is not None
    assert not once.lasts(10_000)
    assert twice is not None
    assert twice.lasts(10_000)


def test_what_may_pass_is_given_its_time() -> None:
    failures = failed(0, 1, is_refused=False)
    for at_ms, lasts in ((9_999, False), (10_000, True)):
        failing = failures.now(at_ms)
        assert failing is not None
        assert failing.lasts(10_000) is lasts


def test_a_while_without_a_failure_is_a_success() -> None:
    failures = failed(1_000, 2_000)
    failures.calm(11_999, 10_000)
    assert failures.now(12_000) is not None
    failures.calm(12_000, 10_000)
    assert failures.now(12_000) is None
