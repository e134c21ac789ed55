import pytest

from kohort.broker.storage.segment.cleaned_segment import CleanedSegment
from kohort.broker.storage.segment.swap import complete_swaps, discard_cleaned
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
    batch_of,
    fill,
    memory_log,
    open_log,
    read_all,
    stored,
)


def prepared() -> tuple[SimulatedFileSystem, CleanedSegment, list[bytes]]:
    """Segments 0, 58 and more on disk, and what is to replace the first two."""
    log, files = memory_log()
    batches = fill(log, 100)
    assert [segment.base_offset for segment in log.segments[:3]] == [0, 58, 116]
    log.flush()
    cleaned = CleanedSegment(files, "/data/t-0", 0, 300)
    replacement = [stored(batch_of(*[b"compacted"] * 58), base) for base in (0, 58)]
    for batch in replacement:
        cleaned.append(batch)
    return files, cleaned, [*replacement, *batches[58:]]


def names(files: SimulatedFileSystem, suffix: str) -> list[str]:
    return [entry.name for entry in files.entries("/data/t-0") if entry.name.endswith(suffix)]


@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_a_decided_replacement_is_carried_out_at_a_start(deleted: int) -> None:
    files, cleaned, expected = prepared()
    cleaned.finish()
    cleaned.decide()
    for base_offset in (0, 58)[:deleted]:
        for suffix in (".log", ".index", ".timeindex"):
            path = f"/data/t-0/{base_offset:020d}{suffix}"
            if files.exists(path):
                files.rename(path, path + ".deleted")
    log = open_log(files, clean=False, recovery_point=200)
    assert [segment.base_offset for segment in log.segments[:2]] == [0, 116]
    assert read_all(log) == expected
    assert not names(files, ".swap")


def test_indexes_without_their_log_are_no_replacement() -> None:
    files, cleaned, _ = prepared()
    cleaned._write_out()
    cleaned._time_index.append_if_later(5, 5)
    cleaned._time_index.save()
    path = "/data/t-0/00000000000000000000.timeindex"
    files.rename(path + ".cleaned", path + ".swap")
    complete_swaps(files, "/data/t-0")
    assert not names(files, ".swap")
    assert files.exists("/data/t-0/00000000000000000000.log")


def test_a_replacement_cut_between_two_batches_is_discarded_for_its_sources() -> None:
    log, files = memory_log()
    batches = fill(log, 100)
    log.flush()
    cleaned = CleanedSegment(files, "/data/t-0", 0, 300)
    first = stored(batch_of(*[b"compacted"] * 40), 0)
    cleaned.append(first)
    cleaned.append(stored(batch_of(*[b"compacted"] * 76), 40))
    cleaned.finish()
    cleaned.decide()
    files.file("/data/t-0/00000000000000000000.log.swap").truncate(len(first))
    log = open_log(files, clean=False, recovery_point=200)
    assert [segment.base_offset for segment in log.segments[:3]] == [0, 58, 116]
    assert read_all(log) == batches


def test_a_replacement_damaged_since_gives_way_to_what_it_was_made_from() -> None:
    files, cleaned, _ = prepared()
    cleaned.finish()
    cleaned.decide()
    files.flip("/data/t-0/00000000000000000000.log.swap", 7, 1)
    log = open_log(files, clean=False, recovery_point=200)
    assert [segment.base_offset for segment in log.segments[:2]] == [0, 58]
    assert not names(files, ".swap")


def test_a_replacement_damaged_since_is_kept_if_nothing_else_is_left() -> None:
    files, cleaned, expected = prepared()
    cleaned.finish()
    cleaned.decide()
    files.flip("/data/t-0/00000000000000000000.log.swap", 40, 1)
    for base_offset in (0, 58):
        path = f"/data/t-0/{base_offset:020d}.log"
        files.rename(path, path + ".deleted")
    log = open_log(files, clean=False, recovery_point=200)
    assert log.log_end_offset == 200
    assert log.segments[0].base_offset == 0
    assert log.read(58, 10**4, up_to_offset=116, min_one=True) == expected[1]


def test_discarding_takes_files_of_any_state() -> None:
    files, cleaned, _ = prepared()
    cleaned.finish()
    cleaned.decide()
    discard_cleaned(files, "/data/t-0", 0)
    assert not names(files, ".swap")
    discard_cleaned(files, "/data/t-0", 0)


def test_a_replacement_completed_at_a_start_survives_a_power_failure() -> None:
    files, cleaned, _ = prepared()
    cleaned.finish()
    cleaned.decide()
    files.sync_directory("/data/t-0")
    assert complete_swaps(files, "/data/t-0") == [0]
    completed = names(files, "")
    files.lose_power(lambda _count: 0)
    assert names(files, "") == completed
