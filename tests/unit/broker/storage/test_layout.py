import pytest

from kohort.broker.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    deleted_directory,
    file_name,
    is_deleted_directory,
    offset_in,
    parse_partition_directory,
)


def test_file_names_have_twenty_digits() -> None:
    assert file_name(345, LOG_SUFFIX) == "00000000000000000345.log"
    assert offset_in("00000000000000000345.log", LOG_SUFFIX) == 345
    assert offset_in(file_name(2**63 - 1, INDEX_SUFFIX), INDEX_SUFFIX) == 2**63 - 1


@pytest.mark.parametrize(
    "name",
    [
        "345.log",
        "00000000000000000345.index",
        "0000000000000000034x.log",
        "\u0660" * 20 + ".log",
        "",
    ],
)
def test_other_names_have_no_offset(name: str) -> None:
    assert offset_in(name, LOG_SUFFIX) is None


@pytest.mark.parametrize("name", ["topic", "-1", "topic-", "topic-x", ".lock", "t-0.abc-delete"])
def test_other_directories_are_none_of_a_partition(name: str) -> None:
    assert parse_partition_directory(name) is None


def test_a_deleted_directory_fits_the_file_system_and_is_known_again() -> None:
    name = deleted_directory("t" * 249, 123456, "a" * 32)
    assert len(name) <= 255
    assert is_deleted_directory(name)
    assert parse_partition_directory(name) is None
    assert not is_deleted_directory("my-delete-0")
