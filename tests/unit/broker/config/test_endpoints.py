"""Listeners are understood as Kafka understands them."""

import pytest

from kohort.broker.config import BrokerConfig
from kohort.broker.config.broker import problems
from kohort.broker.config.network import (
    Endpoint,
    check_advertised,
    check_listeners,
    parse_endpoint,
    parse_ip_overrides,
    parse_protocol_map,
)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://localhost:9092", Endpoint("PLAINTEXT", "localhost", 9092)),
        (" plaintext://:0 ", Endpoint("PLAINTEXT", "", 0)),
        ("IN://[::1]:9092", Endpoint("IN", "::1", 9092)),
        ("IN://::1:9092", Endpoint("IN", "::1", 9092)),
    ],
)
def test_an_endpoint_is_read(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    ["", "localhost:9092", "PLAINTEXT://", "PLAINTEXT://a", "A://a:b", "A://a:65536"],
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_endpoint(text)


def test_listeners_must_differ_in_name_and_port() -> None:
    with pytest.raises(ValueError, match="each listener must have a different name"):
        check_listeners(("A://:1", "A://:2"))
    with pytest.raises(ValueError, match="each listener must have a different port"):
        check_listeners(("A://:1", "B://:1"))
    check_listeners(("A://:0", "B://:0"))
    check_listeners(("A://127.0.0.1:1", "B://[::1]:1"))


def test_an_advertised_address_must_be_one_that_a_client_can_use() -> None:
    with pytest.raises(ValueError, match="could connect to"):
        check_advertised(("A://0.0.0.0:1",))
    check_advertised(("A://:1",))
    check_advertised(("A://broker:1", "B://broker:1"))


def test_the_protocol_map_and_the_overrides_are_read() -> None:
    assert parse_protocol_map("in:PLAINTEXT, OUT:ssl") == {"IN": "PLAINTEXT", "OUT": "SSL"}
    with pytest.raises(ValueError, match="TLS"):
        parse_protocol_map("A:TLS")
    assert parse_ip_overrides("10.0.0.1:5,[::1]:7") == {"10.0.0.1": 5, "::1": 7}
    with pytest.raises(ValueError, match="host:count"):
        parse_ip_overrides("10.0.0.1")


def test_a_listener_needs_a_protocol_and_an_advertised_one_a_listener() -> None:
    config = BrokerConfig(
        listeners=("MINE://:9092",), advertised_listeners=("OTHER://broker:9092",)
    )
    text = "\n".join(problems(config))
    assert "listener MINE of listeners has no entry in listener.security.protocol.map" in text
    assert "listeners has no listener OTHER" in text
    mapped = BrokerConfig(
        listeners=("MINE://:9092",), listener_security_protocol_map="MINE:PLAINTEXT"
    )
    assert problems(mapped) == []


def test_the_listener_of_a_controller_is_not_opened() -> None:
    config = BrokerConfig(
        listeners=("PLAINTEXT://:9092", "CONTROLLER://:9093"),
        controller_listener_names=("CONTROLLER",),
    )
    assert problems(config) == []
    assert config.listener_endpoints == (Endpoint("PLAINTEXT", "", 9092),)
    assert config.advertised_endpoints == config.listener_endpoints
