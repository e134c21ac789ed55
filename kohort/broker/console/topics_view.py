"""GET /api/topics and /api/topics/{topic}: topics, and the groups that read them."""

from typing import Any, Final, TypeAlias

from kohort.broker.console.broker_view import wait_configs
from kohort.broker.console.lag import Ages, total_lag
from kohort.broker.console.source import ConsoleSource
from kohort.broker.console.survey import Survey
from kohort.broker.console.timed_cache import TimedCache
from kohort.broker.groups_seen import Position, positions
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.http.routes import Query
from kohort.broker.metrics.partitions import open_partition
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.topic import Topic

Json: TypeAlias = dict[str, Any]

PAGE_SIZE: Final = 100
PAGES_MAX: Final = 1_000
PARTITIONS_MAX: Final = 1_000
NAMED_MAX: Final = 5
"""Maximum groups that a list shows for each topic."""


class TopicsView:
    def __init__(self, source: ConsoleSource, survey: TimedCache[Survey], ages: Ages) -> None:
        self._source = source
        self._survey = survey
        self._ages = ages

    async def wait_page(self, query: Query) -> Json:
        """Return one page of the list of topics, sorted by name."""
        wanted = (query.text("filter") or "").lower()
        page = query.number("page", 1, at_most=PAGES_MAX)
        with_internal = query.text("internal") == "yes"
        survey = await self._survey.wait()
        time_slice = Slice(self._source.clock, SLICE_MS)
        matching = [
            topic
            for topic in self._source.topics.all()
            if wanted in topic.name.lower() and (with_internal or not topic.is_internal)
        ]
        matching.sort(key=lambda topic: topic.name)
        items = []
        for topic in matching[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]:
            item = await self._sums(topic, time_slice)
            readers = survey.readers.get(topic.name, [])
            item["groups"] = readers[:NAMED_MAX]
            item["group_count"] = survey.reader_counts[topic.name]
            items.append(item)
        return {
            "at_ms": self._source.clock.wall_ms(),
            "found": len(matching),
            "page": page,
            "pages": max(1, -(-len(matching) // PAGE_SIZE)),
            "topics": items,
        }

    async def _sums(self, topic: Topic, time_slice: Slice) -> Json:
        records = size = 0
        offline = 0
        for index in range(len(topic.partitions)):
            partition = open_partition(self._source.topics, topic, index)
            if partition is not None:
                records += max(partition.high_watermark - partition.log.log_start_offset, 0)
                size += partition.log.size_bytes
                offline += partition.failure is not None
            await time_slice.pause()
        return {
            "topic": topic.name,
            "is_internal": topic.is_internal,
            "partition_count": len(topic.partitions),
            "offsets": records,
            "size_bytes": size,
            "offline": offline,
        }

    async def wait_topic(self, topic: Topic, *, with_configs: bool) -> Json:
        """Return one topic, with its partitions, the lag of its groups, and its configs if the
        requester may see them.
        """
        source = self._source
        survey = await self._survey.wait()
        time_slice = Slice(source.clock, SLICE_MS)
        data = await self._sums(topic, time_slice)
        data["at_ms"] = source.clock.wall_ms()
        data["configs"] = None
        if with_configs:
            described = source.topics.settings.describe_topic(topic.overrides)
            data["configs"] = await wait_configs(described, time_slice)
        data["partitions"] = listed = []
        for index in range(min(len(topic.partitions), PARTITIONS_MAX)):
            partition = open_partition(source.topics, topic, index)
            if partition is not None:
                listed.append(
                    {
                        "partition": index,
                        "start": partition.log.log_start_offset,
                        "end": partition.high_watermark,
                        "size_bytes": partition.log.size_bytes,
                        "is_online": partition.failure is None,
                    }
                )
            await time_slice.pause()
        data["groups"] = [
            await self._reader(group_id, topic.name, time_slice)
            for group_id in survey.readers.get(topic.name, [])
        ]
        data["group_count"] = survey.reader_counts[topic.name]
        return data

    async def _reader(self, group_id: str, topic: str, time_slice: Slice) -> Json:
        group = self._source.groups.group(group_id)
        in_topic: list[Position] = []
        if group is not None:
            for position in positions(group, self._source.readable, topic):
                in_topic.append(position)
                await time_slice.pause()
        in_topic.sort(key=lambda position: -(position.lag or 0))
        ages = await self._ages.wait_ages(in_topic[:PARTITIONS_OF_READER], time_slice)
        known = [age for age in ages if age is not None]
        described = None if group is None else group.describe()
        return {
            "group": group_id,
            "state": None if described is None else described.state,
            "members": 0 if described is None else described.member_count,
            "lag": total_lag(in_topic),
            "lag_ms": max(known, default=None),
            "lag_ms_is_least": len(in_topic) > PARTITIONS_OF_READER,
        }


PARTITIONS_OF_READER: Final = 16
"""Maximum partitions per topic and group whose lag in time is read: those with the largest lag."""
