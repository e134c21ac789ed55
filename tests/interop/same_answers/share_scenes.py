"""A share group whose two members fetch from one partition."""

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.pair import Answers, Pair
from tests.interop.same_answers.scenes import Topic
from tests.interop.same_answers.share import (
    WAIT_MS,
    Batch,
    Place,
    Session,
    ShareGroup,
    acquired,
    create_topic,
    errors,
    produce,
)


class Scene:
    """The sizes of the batches in the topic are given; by default there is one of ten records."""

    def __init__(self, pair: Pair, *sizes: int, **configs: str) -> None:
        self.pair = pair
        self.topic: Topic = create_topic(pair)
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.group = ShareGroup(pair, self.topic, configs=named)
        produce(pair, self.topic, *(sizes or (10,)))
        self.one = self.group.session("one")
        self.two = self.group.session("two")

    @property
    def place(self) -> Place:
        return (self.topic, 0)

    def fetch(self, session: Session, *, max_wait_ms: int = WAIT_MS, **fields: Value) -> list[int]:
        """What Kafka has acquired: first, last, count, first, ..."""
        answers = session.fetch([self.place], max_wait_ms=max_wait_ms, **fields)
        return [number for one in acquired(answers.kafka) for number in one[1:]]

    def acknowledge(self, session: Session, *batches: Batch, **fields: Value) -> Answers:
        return session.acknowledge({self.place: list(batches)}, **fields)

    def check(self, session: Session, error: ErrorCode, *batches: Batch, **fields: Value) -> None:
        """Kafka answers with this error."""
        answers = self.acknowledge(session, *batches, **fields)
        assert errors(answers.kafka) == [error], answers.kafka
