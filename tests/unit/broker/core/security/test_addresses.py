"""What addresses say of who is behind them."""

import pytest

from kohort.broker.core.security.addresses import address_block_of, host_text, is_loopback


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"]
)
def test_hosts_that_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "127.example.org",
        "localhost.example.org",
        "127.0.0.1.nip.io",
    ],
)
def test_hosts_that_others_reach(host: str) -> None:
    assert not is_loopback(host)


def test_an_address_of_version_6_is_its_networks() -> None:
    assert address_block_of("2001:db8:1:2::1") == address_block_of("2001:db8:1:2:3:4:5:6")
    assert address_block_of("2001:db8:1:2::1") != address_block_of("2001:db8:1:3::1")
    assert address_block_of("fe80::1%eth0") == address_block_of("fe80::2%eth0")


def test_an_address_of_version_4_is_its_own_however_it_is_written() -> None:
    assert address_block_of("10.0.0.1") == address_block_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert address_block_of("10.0.0.1") != address_block_of("10.0.0.2")
    assert address_block_of("") == ""


@pytest.mark.parametrize(
    ("ip", "text"),
    [
        # The first three as Java's InetAddress.getHostAddress has told them.
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff:1", "2001:db8:0:0:0:0:ff:1"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:0DB8:0000::00fF:1", "2001:db8:0:0:0:0:ff:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_the_text_of_an_address_is_that_which_rules_made_for_kafka_have(ip: str, text: str) -> None:
    assert host_text(ip) == text
