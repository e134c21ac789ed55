"""The start offsets of leader epochs, and the leader-epoch-checkpoint file (KIP-101).

The file has Kafka's text format: version 0, the number of entries, then `<epoch> <start offset>`
per line, both ascending. Every batch contains its epoch as well, so a lost or damaged file can be
rebuilt from the log; it is therefore written without fsync.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from kohort.broker.storage.checked_file import read_checked, replace_checked
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1
_VERSION = "0"
_EPOCHS_AHEAD_MAX = 1000
"""Maximum plausible increase of the epoch from one batch to the next: it increases only when a
leader starts or fails."""


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochRun(NamedTuple):
    epoch: int
    start_offset: int
    batch_count: int


def believable_epochs(runs: Iterable[EpochRun], leader_epoch_max: int) -> list[EpochStart]:
    """Return the epochs of a log's batches, without those of damaged batches.

    Epochs ascend in an intact log: of two runs of batches in the wrong order, the one with fewer
    batches counts as damaged. If only the last batch has the latest epoch, no other batch confirms
    it; the epoch is accepted unless it is implausibly far ahead.

    Args:
        leader_epoch_max: this broker's current epoch. A log written by Kafka may have later ones.
    """
    kept: list[EpochRun] = []
    for run in runs:
        if run.epoch < 0:
            continue
        while kept and kept[-1].epoch > run.epoch and kept[-1].batch_count <= run.batch_count:
            kept.pop()
        if kept and kept[-1].epoch == run.epoch:
            count = kept[-1].batch_count + run.batch_count
            kept[-1] = kept[-1]._replace(batch_count=count)
        elif not kept or kept[-1].epoch < run.epoch:
            kept.append(run)
    if kept and kept[-1].batch_count == 1:
        before = kept[-2].epoch if len(kept) > 1 else 0
        if kept[-1].epoch > max(leader_epoch_max, before + _EPOCHS_AHEAD_MAX):
            kept.pop()
    return [EpochStart(run.epoch, run.start_offset) for run in kept]


class LeaderEpochs:
    """The epochs of one partition. Changes are written to the file at once, unless deferred."""

    __slots__ = ("_directory", "_files", "_is_deferred", "_is_unsaved", "_starts", "latest")

    def __init__(
        self, files: FileSystem, directory: str, starts: Iterable[EpochStart] = ()
    ) -> None:
        self._files = files
        self._directory = directory
        self._is_deferred = False
        self._is_unsaved = False
        self._starts: list[EpochStart] = []
        self.latest = NO_EPOCH
        """The latest epoch, NO_EPOCH if there is none. Cached, because every append reads it."""
        self._set(list(starts))

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def _set(self, starts: list[EpochStart]) -> None:
        self._starts = starts
        self.latest = starts[-1].epoch if starts else NO_EPOCH

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of an offset up to the log end; NO_EPOCH below the first known
        epoch.
        """
        number = bisect_right(self._starts, offset, key=lambda start: start.start_offset)
        return self._starts[number - 1].epoch if number else NO_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Return (largest epoch <= the requested one, its end offset), as in OffsetForLeaderEpoch;
        None if the epoch is not known yet, or the log is empty.

        For an epoch before all known ones, return the epoch itself and the start of the first one.
        """
        if not self._starts or epoch > self.latest or epoch < 0:
            return None
        if epoch == self.latest:
            return epoch, log_end_offset
        number = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        largest = self._starts[number - 1].epoch if number else epoch
        return largest, self._starts[number].start_offset

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` starts at `start_offset`, unless it is known already.

        Raises OSError, having changed nothing.
        """
        if epoch <= self.latest:
            return
        before = self._starts
        kept = [start for start in before if start.start_offset < start_offset]
        self._set([*kept, EpochStart(epoch, start_offset)])
        try:
            self.write()
        except OSError:
            self._set(before)
            raise

    def truncate_from(self, end_offset: int) -> None:
        """Drop epochs that start at or after the end of the log. Raises OSError."""
        kept = [start for start in self._starts if start.start_offset < end_offset]
        if len(kept) != len(self._starts):
            self._set(kept)
            self.write()

    def truncate_before(self, start_offset: int) -> None:
        """Drop epochs that end at or before the start of the log. Raises OSError."""
        number = bisect_right(self._starts, start_offset, key=lambda start: start.start_offset)
        if number > 1:
            self._set(self._starts[number - 1 :])
            self.write()

    def defer(self) -> None:
        """Keep changes in memory until `save`, so that a full disk does not make them fail."""
        self._is_deferred = True

    def save(self) -> None:
        """Write deferred changes. If that fails, remove the outdated file and raise the OSError."""
        self._is_deferred = False
        if not self._is_unsaved:
            return
        try:
            self.write()
        except OSError:
            path = f"{self._directory}/{FILE_NAME}"
            if self._files.exists(path):
                self._files.remove(path)
            raise
        self._is_unsaved = False

    def write(self) -> None:
        """Replace the checkpoint file, unless changes are deferred. Raises OSError."""
        if self._is_deferred:
            self._is_unsaved = True
            return
        lines = [_VERSION, str(len(self._starts))]
        lines += [f"{start.epoch} {start.start_offset}" for start in self._starts]
        content = ("\n".join(lines) + "\n").encode()
        replace_checked(self._files, f"{self._directory}/{FILE_NAME}", content, sync=False)


def read_leader_epochs(files: FileSystem, directory: str) -> list[EpochStart] | None:
    """Read the checkpoint file; None if there is none. Raises OSError.

    Raises CorruptFileError if the file is damaged; the epochs can then be read from the batches.
    """
    path = f"{directory}/{FILE_NAME}"
    content = read_checked(files, path)
    return None if content is None else parse_leader_epochs(content, path)


def parse_leader_epochs(content: bytes, path: str) -> list[EpochStart]:
    """Parse a checkpoint; `path` is used in the message of the CorruptFileError."""
    try:
        version, count, *lines = content.decode("ascii").splitlines()
        starts = [EpochStart(*map(int, line.split())) for line in lines]
        if version != _VERSION or int(count) != len(starts):
            raise CorruptFileError(f"{path}: version {version}, {len(starts)} of {count} entries")
    except (ValueError, TypeError) as error:
        raise CorruptFileError(f"{path}: {error}") from None
    rising = all(
        earlier.epoch < later.epoch and earlier.start_offset < later.start_offset
        for earlier, later in pairwise(starts)
    )
    if not rising or (starts and min(starts[0]) < 0):
        raise CorruptFileError(f"{path}: entries are not in ascending order")
    return starts
