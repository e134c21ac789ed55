"""Filters the topics in a group's pages: requesters without DESCRIBE on the cluster see only topics
that they may describe.

Members, times, causes and partition counts are not filtered.
"""

import json
from collections.abc import Iterable
from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.http.json_parts import dump
from kohort.broker.http.messages import HttpRequest
from kohort.broker.http.rebalance_json import without_members
from kohort.broker.http.requesters import requester_of, sees_cluster

RECORD_BYTES_MAX: Final = 64 * 1024
"""The largest record whose members are filtered, which takes half a millisecond; a larger one is
shown without its members."""


class SeenTopics:
    """Decides which topics the requester may see, with a cache for one request."""

    def __init__(self, request: HttpRequest) -> None:
        self._requester = requester_of(request)
        self._sees_all = sees_cluster(request)
        self._known: dict[str, bool] = {}

    def includes(self, topic: str) -> bool:
        """Whether the requester may describe the topic. A denial is not logged."""
        if self._sees_all:
            return True
        known = self._known.get(topic)
        if known is None:
            known = self._requester.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic)
            self._known[topic] = known
        return known

    def of_record(self, text: bytes) -> bytes:
        """Return a history record without the names of topics that the requester may not see."""
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
