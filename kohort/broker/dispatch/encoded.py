"""A cache of encoded responses, for clients that send equal requests.

All clients of an application request the leaders of the same partitions. Building and encoding the
response is most of the cost of such a request.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.topics.topic import Topic

KEPT_MAX: Final = 100
"""The maximum number of cached responses; beyond that the oldest is dropped."""

KEPT_MAX_BYTES: Final = 16_384
"""Larger responses are not cached, so that the cache takes at most about 3 MB."""


class EncodedResponse:
    """A successful response that is encoded already, in the version of its request."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class _Kept(NamedTuple):
    answer: EncodedResponse
    revisions: tuple[tuple[bytes, int], ...]
    """The topics' revisions, by id: topic objects would keep deleted topics in memory."""


class TopicAnswers:
    """Responses about topics, each valid as long as the data in it has not changed."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable, topics: TopicManager) -> EncodedResponse | None:
        """Return the cached response for `key` if it is still valid, otherwise None."""
        cached = self._kept.get(key)
        if cached is None:
            return None
        for topic_id, revision in cached.revisions:
            topic = topics.get_by_id(topic_id)
            if (
                topic is None
                or topic.partitions.revision != revision
                or not topic.partitions.are_online()
            ):
                del self._kept[key]
                return None
        return cached.answer

    def keep(self, key: Hashable, body: bytes, topics: Sequence[Topic]) -> EncodedResponse:
        """Cache a response that depends only on `topics`, whose partitions are all online."""
        answer = EncodedResponse(body)
        if len(body) <= KEPT_MAX_BYTES:
            if len(self._kept) >= KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            revisions = tuple([(topic.topic_id, topic.partitions.revision) for topic in topics])
            self._kept[key] = _Kept(answer, revisions)
        return answer
