import pytest

from kohort.broker.network.connection.limits import NetworkLimits
from kohort.broker.network.server.admission import Admission


def test_all_connections_together_are_limited() -> None:
    admission = Admission(NetworkLimits(max_connections=2))
    assert admission.admit("10.0.0.1", "PLAINTEXT") is None
    assert admission.admit("10.0.0.2", "PLAINTEXT") is None
    assert admission.admit("10.0.0.3", "PLAINTEXT") == "max.connections"
    admission.release("10.0.0.1", "PLAINTEXT")
    assert admission.admit("10.0.0.3", "PLAINTEXT") is None
    assert admission.count == 2


def test_connections_from_one_address_are_limited() -> None:
    admission = Admission(NetworkLimits(max_connections_per_ip=1))
    assert admission.admit("10.0.0.1", "PLAINTEXT") is None
    assert admission.admit("10.0.0.1", "PLAINTEXT") == "max.connections.per.ip"
    assert admission.admit("10.0.0.2", "PLAINTEXT") is None
    admission.release("10.0.0.1", "PLAINTEXT")
    assert admission.admit("10.0.0.1", "PLAINTEXT") is None


@pytest.mark.parametrize(("override", "admitted"), [(0, 0), (3, 3)])
def test_an_override_replaces_the_limit_for_its_address_in_both_directions(
    override: int, admitted: int
) -> None:
    limits = NetworkLimits(
        max_connections_per_ip=1, max_connections_per_ip_overrides={"10.0.0.1": override}
    )
    admission = Admission(limits)
    answers = [admission.admit("10.0.0.1", "PLAINTEXT") for _ in range(4)]
    assert answers == [None] * admitted + ["max.connections.per.ip.overrides"] * (4 - admitted)
    assert admission.admit("10.0.0.2", "PLAINTEXT") is None
    assert admission.admit("10.0.0.2", "PLAINTEXT") == "max.connections.per.ip"


def test_addresses_that_left_are_forgotten() -> None:
    admission = Admission(NetworkLimits())
    for number in range(1_000):
        ip = f"10.0.{number // 256}.{number % 256}"
        admission.admit(ip, "PLAINTEXT")
        admission.release(ip, "PLAINTEXT")
    assert not admission._per_ip


def test_connections_at_one_listener_are_limited_beside_those_at_others() -> None:
    admission = Admission(NetworkLimits(max_connections_of_listeners={"INTERNAL": 1}))
    assert admission.admit("10.0.0.1", "INTERNAL") is None
    assert admission.admit("10.0.0.2", "INTERNAL") == "listener.name.internal.max.connections"
    assert admission.admit("10.0.0.2", "EXTERNAL") is None
    admission.release("10.0.0.1", "INTERNAL")
    assert admission.admit("10.0.0.2", "INTERNAL") is None
