"""Names by which the HTTP port may be asked."""

import pytest

from kohort.broker.http.server import may_be_called

KNOWN = {"broker.example.com"}


@pytest.mark.parametrize(
    "host",
    [
        *(
            "",
            "localhost",
            "localhost:9308",
            "127.0.0.1:9308",
            "10.1.2.3",
            "[::1]:9308",
            "[fe80::1]",
        ),
        *("kohort:9308", "kohort.ns.svc.cluster.local:9308", "kohort.ns.svc", "KOHORT"),
        *("broker.example.com", "Broker.Example.com:9308", "broker.example.com."),
    ],
)
def test_names_that_are_ours_are_served(host: str) -> None:
    assert may_be_called(host, KNOWN)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:9308", "127.0.0.1.evil.example", "localhost.evil.example"),
        *("broker.example.com.evil.example", "a.b,localhost.x", "[evil.example]", "1.2.3"),
    ],
)
def test_a_name_that_somebody_could_own_is_not(host: str) -> None:
    assert not may_be_called(host, KNOWN)
