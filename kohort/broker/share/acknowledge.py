"""Applies the acknowledgements of one request, and releases records when a session ends."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kohort.broker.runtime.slices import Slice
from kohort.broker.share.partition import SharePartition
from kohort.broker.share.partitions import SharePartitions
from kohort.groups.share.sessions import SessionPartition
from kohort.groups.share.window import AcknowledgementError
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch


class Acknowledging:
    """Applies acknowledgements to the windows of share-partitions, and stores the changes.

    Each call stages one record per changed share-partition before it returns, so that all changes
    are stored even if the request is interrupted.
    """

    __slots__ = ("_member_id", "_partitions", "_then", "_unstored_count", "errors")

    def __init__(self, partitions: SharePartitions, member_id: str) -> None:
        self._partitions = partitions
        self._member_id = member_id
        self._unstored_count = 1
        self._then: Callable[[], None] | None = None
        self.errors: dict[SharePartition, AcknowledgementError] = {}
        """Share-partitions whose acknowledgements have failed."""

    def acknowledge(
        self,
        share: SharePartition,
        now_ms: int,
        batches: Sequence[AcknowledgementBatch],
        *,
        releases: bool = False,
    ) -> None:
        """Apply validated acknowledgements to a share-partition. With `releases`, also release the
        records that the member still has locked.
        """
        window = None if share.is_gone else self._partitions.window(share)
        if window is None:
            self.errors[share] = AcknowledgementError(ErrorCode.INVALID_RECORD_STATE)
            return
        error = window.acknowledge(self._member_id, now_ms, batches)
        if error is not None:
            self.errors[share] = error
        else:
            share.counts.note_acknowledged(batches)
        if releases:
            window.release_all(self._member_id)
        self._store(share)

    def release_all(self, group_id: str, partitions: Iterable[SessionPartition]) -> None:
        """Release all records that the member has locked in these partitions, in time slices. The
        release continues even if the request is interrupted.
        """
        self._unstored_count += 1
        left = iter(list(partitions))

        def release(time_slice: Slice) -> bool:
            for topic_id, number in left:
                share = self._partitions.find_loaded(group_id, topic_id, number)
                if share is not None and share.window is not None:
                    # Looked up again, because `share.window` may have outdated settings.
                    window = self._partitions.window(share)
                    if window is not None:
                        window.release_all(self._member_id)
                        self._store(share)
                if time_slice.is_over():
                    return True
            self._count_down()
            return False

        self._partitions.run_in_slices(release)

    def store(self, then: Callable[[], None]) -> None:
        """Call `then` when all changes are durable or have failed; at once if there are none."""
        self._then = then
        self._count_down()

    def _store(self, share: SharePartition) -> None:
        if self._partitions.after_step(share, partial(self._on_stored, share)):
            self._unstored_count += 1

    def _on_stored(self, share: SharePartition, error: KafkaError | None) -> None:
        if error is not None and share not in self.errors:
            self.errors[share] = AcknowledgementError(error.code, error.message)
        self._count_down()

    def _count_down(self) -> None:
        self._unstored_count -= 1
        if not self._unstored_count and self._then is not None:
            then, self._then = self._then, None
            then()
