"""The topics of the broker, as consumer groups see them."""

from collections.abc import Iterable

from kohort.broker.topics.catalog import Catalog
from kohort.groups.consumer.settings import Topic


class GroupTopics:
    """See :class:`kohort.groups.consumer.settings.Topics`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def version(self) -> int:
        return self._catalog.version

    def get(self, name: str) -> Topic | None:
        topic = self._catalog.get(name)
        return None if topic is None else Topic(topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._catalog.get_by_id(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return [topic.name for topic in self._catalog.all()]
