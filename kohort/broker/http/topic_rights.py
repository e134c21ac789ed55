"""The topics in a group's pages, for a visitor who may not see the whole cluster: those that it may
describe.

Members, times, causes and counts of partitions are the group's own, and stay.
"""

import json
from collections.abc import Iterable
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.http.json_parts import dump
from kohort.broker.http.messages import HttpRequest
from kohort.broker.http.rebalance_json import without_members
from kohort.broker.http.visitors import sees_cluster, visitor_of

RECORD_BYTES_MAX: Final = 64 * 1024
"""The largest record whose members are looked through, which takes half a millisecond; a larger one
is shown without them."""


class SeenTopics:
    """The topics that the visitor of one request may see."""

    def __init__(self, request: HttpRequest) -> None:
        self._visitor = visitor_of(request)
        self._sees_all = sees_cluster(request)
        self._known: dict[str, bool] = {}

    def includes(self, topic: str) -> bool:
        """Whether the visitor may describe the topic. A denial is not logged."""
        if self._sees_all:
            return True
        known = self._known.get(topic)
        if known is None:
            known = self._visitor.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic)
            self._known[topic] = known
        return known

    def of_record(self, text: bytes) -> bytes:
        """Return a record of the history without the names of other topics."""
        if self._sees_all:
            return text
        if len(text) > RECORD_BYTES_MAX:
            text = without_members(text)
        record = json.loads(text)
        for cause in (record.get("trigger"), *record.get("further_causes", ())):
            if cause and cause.get("grown_topics"):
                cause["grown_topics"] = list(filter(self.includes, cause["grown_topics"]))
        for member in record.get("members", ()):
            partitions = member["partitions"]
            for moved in ("given_up", "gained"):
                partitions[moved] = self._of_partitions(partitions[moved])
        return dump(record)

    def _of_partitions(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.includes(name.rpartition("-")[0])]
