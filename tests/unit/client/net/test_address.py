import pytest

from kohort.client.core.errors import ConfigError
from kohort.client.net.address import Address, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("a:1,b:2", [Address("a", 1), Address("b", 2)]),
        (" a:1 , b ", [Address("a", 1), Address("b", 9092)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("::1", [Address("::1", 9092)]),
        (["a:1"], [Address("a", 1)]),
    ],
)
def test_bootstrap_servers_are_read_as_kafka_clients_read_them(
    text: str, expected: list[Address]
) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", " , ", ":9092", "a:b", "a:99999", []])
def test_an_address_that_cannot_be_one_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        parse_bootstrap(text)
