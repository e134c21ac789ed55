"""Answers that are encoded once and given to every client that asks the same.

A fleet of clients asks one question many times: who leads the partitions of the topics that all of
them read. Looking that up again and encoding it is most of what the request costs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.topics.topic import Topic

KEPT_MAX: Final = 100
"""Questions whose answers are kept; beyond that the oldest goes."""

KEPT_MAX_BYTES: Final = 16_384
"""Larger answers are not kept. Peers who ask what they like make us hold some 3 MB."""


class EncodedResponse:
    """A response without errors, encoded in the version of its request; a handler may return it in
    place of the response itself.
    """

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body
        """The encoded response, without a header."""


class _Kept(NamedTuple):
    answer: EncodedResponse
    revisions: tuple[tuple[bytes, int], ...]
    """By topic id, and not the topics themselves: those that are deleted are to be freed."""


class TopicAnswers:
    """Answers about topics, each given for as long as nothing has changed that it tells."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, question: Hashable, topics: TopicManager) -> EncodedResponse | None:
        """The answer, if there is one and it still holds."""
        kept = self._kept.get(question)
        if kept is None:
            return None
        for topic_id, revision in kept.revisions:
            topic = topics.get_by_id(topic_id)
            if (
                topic is None
                or topic.partitions.revision != revision
                or not topic.partitions.are_online()
            ):
                del self._kept[question]
                return None
        return kept.answer

    def keep(self, question: Hashable, body: bytes, told: Sequence[Topic]) -> EncodedResponse:
        """What is to be given from now on. All that may change in it are the topics there are and
        what is told of their partitions, all of which are online.
        """
        answer = EncodedResponse(body)
        if len(body) <= KEPT_MAX_BYTES:
            if len(self._kept) >= KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            revisions = tuple([(topic.topic_id, topic.partitions.revision) for topic in told])
            self._kept[question] = _Kept(answer, revisions)
        return answer
