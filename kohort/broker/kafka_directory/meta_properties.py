"""meta.properties, the file that identifies a directory's cluster, and marks it as Kafka's."""

import base64
from typing import Final, NamedTuple

from kohort.broker.storage.layout import KAFKA_FILE
from kohort.formats.properties import parse_properties

_VERSION: Final = "1"


class MetaProperties(NamedTuple):
    """The content of the file."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None
    """16 bytes; None before Kafka 3.7."""


def encode_id(value: bytes) -> str:
    """Encode 16 bytes as Kafka does."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """The content of the file."""
    lines = [f"version={_VERSION}", f"cluster.id={meta.cluster_id}", f"node.id={meta.node_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={encode_id(meta.directory_id)}")
    return ("\n".join(lines) + "\n").encode()


def parse_meta_properties(text: str) -> MetaProperties:
    """Parse the file. Raises ValueError if it is not a KRaft node's."""
    properties = {entry.name: entry.value for entry in parse_properties(text)}
    version = properties.get("version")
    if version != _VERSION:
        raise ValueError(f"{KAFKA_FILE} of version {version}; KRaft has version {_VERSION}")
    for name in ("cluster.id", "node.id"):
        if name not in properties:
            raise ValueError(f"{KAFKA_FILE} without {name}")
    directory_id = properties.get("directory.id")
    decoded = None if directory_id is None else base64.urlsafe_b64decode(directory_id + "==")
    return MetaProperties(properties["cluster.id"], int(properties["node.id"]), decoded)
