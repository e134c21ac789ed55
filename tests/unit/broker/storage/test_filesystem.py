"""The real file system's promises, and the simulated one held against it."""

import errno
import os
import resource
import threading
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.storage.filesystem import FileSystem, OsFileSystem, read_file, write_fully
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.suites.examples import examples


def test_a_file_that_is_never_used_holds_no_descriptor(tmp_path: Path) -> None:
    files = OsFileSystem()
    (tmp_path / "a").write_bytes(b"abc")
    file = files.file(f"{tmp_path}/a")
    assert files.open_count == 0
    assert file.pread(10, 1) == b"bc"
    assert files.open_count == 1
    file.close()
    assert files.open_count == 0


def test_descriptors_stay_below_the_limit_and_every_file_stays_usable(tmp_path: Path) -> None:
    files = OsFileSystem(open_files_max=8)
    before = descriptors_of_this_process()
    handles = [files.create(f"{tmp_path}/{number}") for number in range(50)]
    for number, handle in enumerate(handles):
        write_fully(handle, [str(number).encode()], 0)
    assert files.open_count <= 8
    for number, handle in enumerate(handles):
        assert handle.pread(10, 0) == str(number).encode()
        assert files.open_count <= 8
        assert descriptors_of_this_process() - before <= 8


def test_a_limit_of_the_process_that_is_raised_later_counts(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
    try:
        files = OsFileSystem()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    handles = [files.create(f"{tmp_path}/{number}") for number in range(60)]
    assert files.open_count == len(handles)


def descriptors_of_this_process() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_closed_during_its_sync_keeps_its_descriptor_until_the_sync_is_over(
    tmp_path: Path,
) -> None:
    files = OsFileSystem()
    file = files.create(f"{tmp_path}/a")
    for _ in range(10):
        write_fully(file, [os.urandom(10_000)], 0)
        thread = threading.Thread(target=file.sync)
        thread.start()
        file.close()
        thread.join()
    file.close()
    assert files.open_count == 0


def test_a_missing_file_is_reported_on_first_use(tmp_path: Path) -> None:
    file = OsFileSystem().file(f"{tmp_path}/a")
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)


def test_short_writes_are_completed() -> None:
    files = SimulatedFileSystem()
    files.write_bytes_max = 3
    file = files.create("/a")
    assert write_fully(file, [b"0123456789", b"abcdef"], 2) == 18
    assert read_file(files, "/a") == b"\0\0" + b"0123456789abcdef"


def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    files = SimulatedFileSystem()
    file = files.create("/a")
    files.space_left = 10
    with pytest.raises(OSError) as caught:
        write_fully(file, [b"x" * 16], 0)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 10
    write_fully(file, [b"y" * 10], 0)
    file.truncate(4)
    write_fully(file, [b"z" * 6], 4)
    assert read_file(files, "/a") == b"yyyyzzzzzz"


def test_a_failed_sync_never_reaches_the_disk_though_the_next_one_succeeds() -> None:
    files = SimulatedFileSystem()
    file = files.create("/a")
    files.sync_directory("")
    write_fully(file, [b"lost"], 0)
    files.fail("sync", suffix="a", number=errno.EIO)
    with pytest.raises(OSError):
        file.sync()
    assert file.pread(4, 0) == b"lost"
    file.sync()
    file.drop_cached()
    assert file.pread(4, 0) == b""


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_what_was_synced_survives_every_power_loss(seed: int) -> None:
    random = Random(seed)
    files = SimulatedFileSystem()
    file = files.create("/a")
    files.sync_directory("")
    write_fully(file, [b"s" * 2000], 0)
    file.sync()
    write_fully(file, [b"u" * 2000], 2000)
    files.create("/b")
    files.lose_power(random.randrange)
    content = read_file(files, "/a")
    assert content[:2000] == b"s" * 2000
    assert set(content[2000:]) <= set(b"u\0")


def test_some_power_losses_take_unsynced_data_and_names_and_some_do_not() -> None:
    outcomes = set()
    for seed in range(200):
        files = SimulatedFileSystem()
        file = files.create("/a")
        write_fully(file, [b"u" * 1024], 0)
        files.lose_power(Random(seed).randrange)
        outcomes.add(bytes(read_file(files, "/a")[::512]) if files.exists("/a") else None)
    assert outcomes >= {None, b"", b"u", b"uu", b"\0u"}


def test_files_lose_their_ends_where_the_disk_writes_in_order() -> None:
    outcomes = set()
    for seed in range(300):
        files = SimulatedFileSystem()
        file = files.create("/a")
        files.sync_directory("")
        for position in range(3):
            write_fully(file, [b"abc"[position : position + 1] * 512], position * 512)
        before = files.fingerprint()
        files.lose_ends(Random(seed).randrange)
        content = bytes(read_file(files, "/a")[::512])
        assert (files.fingerprint() == before) is (content == b"abc")
        outcomes.add(content)
    assert outcomes == {b"", b"a", b"ab", b"abc"}


_NAMES = st.sampled_from(["a", "b", "c"])
_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), _NAMES),
        st.tuples(st.just("write"), _NAMES, st.binary(max_size=40), st.integers(0, 60)),
        st.tuples(st.just("truncate"), _NAMES, st.integers(0, 60)),
        st.tuples(st.just("rename"), _NAMES, _NAMES),
        st.tuples(st.just("remove"), _NAMES),
        st.tuples(st.just("sync"), _NAMES),
        st.tuples(st.just("read"), _NAMES, st.integers(0, 60), st.integers(0, 60)),
    ),
    max_size=25,
)


@settings(max_examples=examples(50), deadline=None)
@given(_OPERATIONS)
def test_the_simulated_file_system_does_what_the_real_one_does(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[object, ...]]
) -> None:
    root = str(tmp_path_factory.mktemp("real"))
    simulated = SimulatedFileSystem()
    simulated.make_directory(root)
    real = OsFileSystem()
    for operation in operations:
        assert _outcome(simulated, root, operation) == _outcome(real, root, operation), operation
    assert sorted(entry[:3] for entry in simulated.entries(root)) == sorted(
        entry[:3] for entry in real.entries(root)
    )
    for entry in real.entries(root):
        path = f"{root}/{entry.name}"
        assert read_file(simulated, path) == read_file(real, path)


def _outcome(files: FileSystem, root: str, operation: tuple[object, ...]) -> object:
    result: object = None
    try:
        match operation:
            case ("create", name):
                result = files.create(f"{root}/{name}").size()
            case ("write", name, bytes(data), int(position)):
                result = files.file(f"{root}/{name}").pwritev([data], position)
            case ("truncate", name, int(size)):
                files.file(f"{root}/{name}").truncate(size)
            case ("rename", source, target):
                files.rename(f"{root}/{source}", f"{root}/{target}")
            case ("remove", name):
                files.remove(f"{root}/{name}")
            case ("sync", name):
                files.sync_directory(root)
                files.file(f"{root}/{name}").sync()
            case ("read", name, int(length), int(position)):
                result = files.file(f"{root}/{name}").pread(length, position)
    except OSError as error:
        return error.errno
    return result


@pytest.mark.parametrize("simulated", [False, True])
def test_directories_are_made_renamed_and_removed_with_all_they_hold(
    tmp_path: Path, simulated: bool
) -> None:
    files: FileSystem = SimulatedFileSystem() if simulated else OsFileSystem()
    root = str(tmp_path)
    files.make_directory(f"{root}/t-0/x")
    files.make_directory(f"{root}/t-0")
    write_fully(files.create(f"{root}/t-0/f"), [b"1"], 0)
    files.rename(f"{root}/t-0", f"{root}/t-0.gone")
    assert not files.exists(f"{root}/t-0/f")
    assert read_file(files, f"{root}/t-0.gone/f") == b"1"
    assert [(entry.name, entry.is_directory) for entry in files.entries(root)] == [
        ("t-0.gone", True)
    ]
    files.remove_tree(f"{root}/t-0.gone")
    assert files.entries(root) == []
    with pytest.raises(FileNotFoundError):
        files.entries(f"{root}/t-0.gone")


@pytest.mark.parametrize("use", ["pwritev", "pread", "size", "truncate", "sync", "drop_cached"])
def test_a_file_evicted_while_it_is_used_keeps_its_descriptor_until_the_call_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """The number must not be free for another file while a system call is about to use it."""
    file = OsFileSystem().create(f"{tmp_path}/a")
    call, arguments = {
        "pwritev": ("pwritev", ([b"x"], 0)),
        "pread": ("pread", (1, 0)),
        "size": ("fstat", ()),
        "truncate": ("ftruncate", (0,)),
        "sync": ("fdatasync", ()),
        "drop_cached": ("posix_fadvise", ()),
    }[use]
    real = getattr(os, call)

    def evicting(*given: object) -> object:
        file.close()
        return real(*given)

    monkeypatch.setattr(os, call, evicting)
    getattr(file, use)(*arguments)
    assert not file.is_open


def test_a_copy_of_the_simulated_disk_and_its_original_part_ways() -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/d")
    file = disk.create("/d/f")
    file.pwritev([b"synced"], 0)
    file.sync()
    disk.sync_directory("/d")
    file.pwritev([b" and not"], 6)

    copy = disk.copy()
    file.pwritev([b"X"], 0)
    disk.create("/d/later")
    cached = copy.file("/d/f").pread(100, 0)
    copy.lose_power(lambda count: 0)

    assert cached == b"synced and not"
    assert copy.file("/d/f").pread(100, 0) == b"synced"
    assert not copy.exists("/d/later")
