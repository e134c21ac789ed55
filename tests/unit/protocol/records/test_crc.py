"""The checksum of batches."""

import crc32c as package

from kohort.protocol.records.crc import crc32c


def test_it_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"123456789")) == 0xE3069283


def test_it_goes_on_from_a_checksum() -> None:
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789")


def test_it_is_what_the_package_computes() -> None:
    for length in (0, 1, 7, 8, 9, 1000, 100_000):
        data = bytes(index * 31 % 256 for index in range(length))
        assert crc32c(data) == package.crc32c(data)
