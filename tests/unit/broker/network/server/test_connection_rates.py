from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.server.admission import ConnectionRates

NOW_MS = 1_000_000


def test_without_limits_nothing_is_backlog() -> None:
    rates = ConnectionRates(NetworkLimits(), lambda _: None)
    assert not any(rates.of_listener("A", NOW_MS) for _ in range(1_000))
    assert not any(rates.of_ip("::1", NOW_MS) for _ in range(1_000))


def test_a_listener_is_held_up_by_its_own_limit_and_by_that_of_all() -> None:
    limits = NetworkLimits(
        max_connection_creation_rate=2, max_connection_creation_rates={"A": 1, "B": 2}
    )
    rates = ConnectionRates(limits, lambda _: None)
    assert not any(rates.of_listener("A", NOW_MS) for _ in range(10))
    # One more than A may have in ten windows: for as long as the rate is too high.
    assert rates.of_listener("A", NOW_MS) == 1_000
    assert not any(rates.of_listener("B", NOW_MS) for _ in range(9))
    assert rates.of_listener("B", NOW_MS) == 500


def test_it_is_never_held_up_for_longer_than_a_window() -> None:
    limits = NetworkLimits(max_connection_creation_rate=1)
    rates = ConnectionRates(limits, lambda _: None)
    assert max(rates.of_listener("A", NOW_MS) for _ in range(100)) == 1_000
    closed = ConnectionRates(NetworkLimits(max_connection_creation_rate=0), lambda _: None)
    assert closed.of_listener("A", NOW_MS) == 1_000


def test_connections_that_are_not_served_do_not_count_for_their_address() -> None:
    rates = ConnectionRates(NetworkLimits(), {"::1": 2.0}.get)
    assert not any(rates.of_ip("::1", NOW_MS) for _ in range(20))
    assert [rates.of_ip("::1", NOW_MS) for _ in range(3)] == [500, 500, 500]
    assert rates.of_ip("::2", NOW_MS) == 0
    assert rates.of_ip("::1", NOW_MS + 11_000) == 0


def test_limits_that_change_hold_at_once() -> None:
    rates = ConnectionRates(NetworkLimits(max_connection_creation_rate=1), lambda _: None)
    assert any(rates.of_listener("A", NOW_MS) for _ in range(11))
    rates.limits = NetworkLimits()
    assert rates.of_listener("A", NOW_MS) == 0
