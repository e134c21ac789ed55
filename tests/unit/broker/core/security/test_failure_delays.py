"""Failures are kept back by whose they are, not by which of its addresses somebody comes from."""

from kohort.broker.core.security.addresses import FAILURES, LONGEST_MS, WITHIN_MS, FailureDelays

LEAST_MS = 100


def delays_of(ips: list[str]) -> list[int]:
    """How long failures of these addresses, a millisecond apart, are kept back."""
    delays = FailureDelays()
    return [delays.delay_ms(ip, now_ms, LEAST_MS) for now_ms, ip in enumerate(ips)]


def test_addresses_of_one_network_of_version_6_are_kept_back_together() -> None:
    found = delays_of([f"2001:db8:1:2::{number:x}" for number in range(FAILURES + 1)])
    assert found == [LEAST_MS] * FAILURES + [LONGEST_MS]


def test_addresses_of_different_owners_are_kept_back_apart() -> None:
    found = delays_of([f"2001:db8:1:{number:x}::1" for number in range(FAILURES + 1)])
    assert set(found) == {LEAST_MS}
    found = delays_of([f"10.0.0.{number}" for number in range(FAILURES + 1)])
    assert set(found) == {LEAST_MS}


def test_failures_of_long_ago_do_not_count() -> None:
    delays = FailureDelays()
    for now_ms in range(FAILURES):
        delays.delay_ms("10.0.0.1", now_ms, LEAST_MS)
    assert delays.delay_ms("10.0.0.1", WITHIN_MS, LEAST_MS) == LEAST_MS
    assert delays.delay_ms("10.0.0.1", WITHIN_MS, LEAST_MS) == LONGEST_MS
