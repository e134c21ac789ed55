"""GET /groups/{group}/share: a group's share-partitions, their state in words, and warnings.

The console's page of a share group has the same data.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from kohort.broker.groups_seen import GroupSeen
from kohort.broker.runtime.slices import Slice
from kohort.broker.share.delivery import ShareDelivery
from kohort.broker.share.reports import Ended, GroupReport
from kohort.broker.share.views import SharePartitionView, ended_json, view_of
from kohort.formats.text import counted, duration, listed, shown
from kohort.groups.history.shares import parse_share
from kohort.groups.requests import Now

Json: TypeAlias = dict[str, Any]

PARTITIONS_MAX: Final = 1_000
ENDED_MAX: Final = 100
"""Maximum number of archived ranges in a response; older ones are omitted."""
MEMBERS_MAX: Final = 1_000
NAMED_MAX: Final = 5
_LOCKS_USED_MAX: Final = 0.9
"""Fraction of its lock limit above which a share-partition gets a warning."""

Includes: TypeAlias = Callable[[str], bool]
"""Whether the requester may see a topic."""


class ShareGroupView:
    """A share group, read in time slices."""

    def __init__(
        self,
        delivery: ShareDelivery,
        group: GroupSeen,
        now: Callable[[], Now],
        includes: Includes = lambda _: True,
    ) -> None:
        self._delivery = delivery
        self._group = group
        self._now = now
        self._includes = includes

    @property
    def _report(self) -> GroupReport | None:
        return self._delivery.partitions.reports.get(self._group.group_id)

    async def wait_json(self, time_slice: Slice) -> Json:
        """Return up to `PARTITIONS_MAX` share-partitions, with the group's warnings."""
        partitions: list[Json] = []
        warnings: list[Json] = []
        total = 0
        for view in self._views():
            total += 1
            if len(partitions) < PARTITIONS_MAX:
                texts = [view.start_text(), view.fetch_text()]
                partitions.append(view.as_json() | {"text": texts})
                warnings += _warnings(view)
            await time_slice.pause()
        warnings += self._member_warnings()
        return {
            "at_ms": self._now().wall_ms,
            "share_partition_count": total,
            "share_partitions": sorted(
                partitions, key=lambda each: (each["topic"], each["partition"])
            ),
            "archived": self._archived(),
            "warnings": warnings,
        }

    def partition_json(self, topic: str, number: int, offset: int | None) -> Json | None:
        """Return a share-partition, with the state and deliveries of the record at `offset`, if
        given; None if the group has not initialized it, or the requester may not see its topic.
        """
        for view in self._views():
            if (view.log.topic_name, view.log.index) == (topic, number):
                texts = [view.start_text(), view.fetch_text(), *self._member_texts(view)]
                if offset is not None:
                    texts = [*view.record_texts(offset), "", *texts]
                return view.as_json() | {"text": texts}
        return None

    def _views(self) -> Iterator[SharePartitionView]:
        for share in self._delivery.partitions.of_group(self._group.group_id):
            view = view_of(self._delivery, share, self._now())
            if view is not None and self._includes(view.log.topic_name):
                yield view

    def _member_texts(self, view: SharePartitionView) -> Iterator[str]:
        """Yield the reasons why members cannot fetch the partition, if any."""
        partition = (view.log.topic_name, view.log.index)
        members = self._group.describe_members(MEMBERS_MAX)
        if not members:
            yield "The group has no members."
        elif not any(partition in (parse_share(each.assignment) or ()) for each in members):
            yield "No member is assigned the partition."
        if self._delivery.sessions.is_full:
            yield (
                f"{counted(len(self._delivery.sessions), 'share session')} are open, the maximum "
                "(group.share.max.share.sessions): further members get "
                "SHARE_SESSION_LIMIT_REACHED."
            )

    def _archived(self) -> list[Json]:
        report = self._report
        newest: Sequence[Ended] = () if report is None else list(report.archived)[-ENDED_MAX:]
        archived: list[Json] = []
        for ended in newest:
            log = self._delivery.partitions.find(ended.key.topic_id, ended.key.partition)
            if log is not None and self._includes(log.topic_name):
                archived.append(ended_json(ended, log.topic_name))
        return archived

    def _member_warnings(self) -> Iterator[Json]:
        report = self._report
        if report is None:
            return
        present = {member.member_id for member in self._group.describe_members(MEMBERS_MAX)}
        silent = {
            member_id: count
            for member_id, count in report.lock_timeouts.items()
            if member_id in present and not report.acknowledged[member_id]
        }
        if silent:
            records = counted(sum(silent.values()), "record")
            yield _warning(
                "never-acknowledges",
                f"{counted(len(silent), 'member')} had lock timeouts and no acknowledgements: "
                f"{listed(list(silent))}, {records}.",
                "The application does not acknowledge what it gets, or takes longer than the lock "
                "(share.record.lock.duration.ms). Others get the records again.",
                list(silent)[:NAMED_MAX],
            )


def _warning(check: str, text: str, advice: str, member_ids: Sequence[str] = ()) -> Json:
    """Return a warning in the form of the console's findings."""
    return {
        "check": check,
        "is_warning": True,
        "text": text,
        "advice": advice,
        "member_ids": member_ids,
    }


def _warnings(view: SharePartitionView) -> Iterator[Json]:
    share, limits = view.share, view.settings.window
    held_ms = view.now.ms - share.held_since_ms
    if share.held_offset is not None and held_ms >= 2 * limits.lock_duration_ms:
        yield _warning(
            "holds-the-start",
            f"Record {share.held_offset:,} has kept the start offset of {view.name} from "
            f"advancing for {duration(held_ms)}.",
            "Later records are delivered until the lock limit is reached. `kohort groups why "
            f"{shown(share.key.group_id)} {shown(view.log.topic_name)} {view.log.index} "
            f"{share.held_offset}` "
            "says who has it.",
        )
    if view.in_flight > _LOCKS_USED_MAX * limits.max_record_locks:
        yield _warning(
            "lock-limit",
            f"{view.name} has {view.in_flight:,} records in flight of at most "
            f"{limits.max_record_locks:,}.",
            "At the limit nothing more is delivered until its first record is finished. Look for "
            "a member that does not acknowledge, or raise share.partition.max.record.locks.",
        )
