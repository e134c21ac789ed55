import errno
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.storage.checked_file import CHECKSUM_SUFFIX, read_checked, replace_checked
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import read_file
from kohort.testing.simulated_filesystem import SimulatedFileSystem

PATH = "/checkpoint"


def test_a_file_that_is_not_there_is_none() -> None:
    assert read_checked(SimulatedFileSystem(), PATH) is None


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=60), st.data())
def test_every_damaged_byte_is_noticed_or_harmless(content: bytes, data: st.DataObject) -> None:
    files = SimulatedFileSystem()
    replace_checked(files, PATH, b"before")
    replace_checked(files, PATH, content)
    path = data.draw(st.sampled_from([PATH, PATH + CHECKSUM_SUFFIX]))
    position = data.draw(st.integers(0, len(read_file(files, path)) - 1))
    files.flip(path, position, data.draw(st.integers(1, 255)))
    if path == PATH:
        with pytest.raises(CorruptFileError):
            read_checked(files, PATH)
    else:
        assert read_checked(files, PATH) == content


def test_without_checksums_the_content_is_taken_as_it_is() -> None:
    files = SimulatedFileSystem()
    replace_checked(files, PATH, b"0\n0\n")
    files.remove(PATH + CHECKSUM_SUFFIX)
    assert read_checked(files, PATH) == b"0\n0\n"


@pytest.mark.parametrize("failing", ["create", "pwritev", "sync"])
@pytest.mark.parametrize("suffix", [".crc.tmp", "checkpoint.tmp"])
def test_a_replacement_that_fails_anywhere_leaves_the_old_content(
    failing: str, suffix: str
) -> None:
    files = SimulatedFileSystem()
    replace_checked(files, PATH, b"old")
    files.fail(failing, suffix=suffix, number=errno.EIO)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        replace_checked(files, PATH, b"new")
    assert read_checked(files, PATH) == b"old"
    replace_checked(files, PATH, b"newer")
    assert read_checked(files, PATH) == b"newer"


@pytest.mark.parametrize("seed", range(60))
def test_a_power_loss_leaves_the_old_or_the_new_content(seed: int) -> None:
    files = SimulatedFileSystem()
    replace_checked(files, PATH, b"old")
    files.sync_directory("")
    replace_checked(files, PATH, b"new")
    files.lose_power(Random(seed).randrange)
    assert read_checked(files, PATH) in {b"old", b"new"}


def test_a_file_too_large_for_a_checkpoint_is_not_read() -> None:
    files = SimulatedFileSystem()
    files.create(PATH).truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(CorruptFileError):
        read_checked(files, PATH)
