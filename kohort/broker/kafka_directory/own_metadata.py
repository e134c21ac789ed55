"""Converts Kohort's metadata to a Kafka cluster image and back. No I/O."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kohort.broker.config.group import GROUP_CONFIGS as KNOWN_OF_GROUPS
from kohort.broker.config.topic import TOPIC_SETTINGS
from kohort.broker.core.security.quotas import QuotaError, check_limit, entity_of
from kohort.broker.kafka_directory.image import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from kohort.broker.security.client_quotas import CLIENT_QUOTA, entity_in
from kohort.broker.security.client_quotas import property_of as property_of_quota
from kohort.broker.security.rules import ACCESS_RULE, rules_in
from kohort.broker.security.rules import property_of as property_of_rule
from kohort.broker.security.users import (
    MECHANISMS,
    USER,
    CredentialKey,
    credential_text,
    key_of,
    property_of,
    read_credential,
)
from kohort.broker.storage.metadata.database import CHANGES, Content, TopicRecord
from kohort.broker.storage.metadata.store import BROKER_CONFIGS as BROKER_CONFIGS_PROPERTY
from kohort.broker.storage.metadata.store import CLUSTER_ID, NEXT_PRODUCER_ID
from kohort.broker.storage.metadata.store import GROUP_CONFIGS as GROUP_CONFIGS_PROPERTY

OWN_PREFIX: Final = "kohort."

_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


def image_of(
    content: Content,
    *,
    node_id: int,
    directory_id: bytes,
    leader_epoch: Callable[[str, int], int],
    new_id: Callable[[], bytes],
) -> tuple[ClusterImage, list[str]]:
    """Return the image of a cluster whose only node has this directory, and descriptions of
    everything omitted.

    Args:
        node_id: the node's id, in Kohort's metadata and in the image.
        directory_id: 16 bytes.
        leader_epoch: returns the current leader epoch of a partition.
        new_id: returns a new UUID, as 16 bytes.
    """
    image = ClusterImage()
    left: list[str] = []
    for topic in content.topics:
        if topic.deleted:
            continue
        partitions = {
            index: PartitionImage(
                [node_id], [node_id], node_id, leader_epoch(topic.name, index), [directory_id]
            )
            for index in range(topic.partition_count)
        }
        image.topics[topic.topic_id] = TopicImage(topic.name, topic.topic_id, partitions)
        if topic.configs:
            image.configs[TOPIC_CONFIGS, topic.name] = dict(topic.configs)
    for name, text in sorted(content.properties.items()):
        if name.startswith(BROKER_CONFIGS_PROPERTY):
            broker = name.removeprefix(BROKER_CONFIGS_PROPERTY)
            left += _take_broker_configs(image, broker, json.loads(text), node_id)
        elif name.startswith(GROUP_CONFIGS_PROPERTY):
            image.configs[GROUP_CONFIGS, name.removeprefix(GROUP_CONFIGS_PROPERTY)] = json.loads(
                text
            )
        elif name.startswith(USER):
            user, mechanism = key_of(name)
            image.credentials[user, _NUMBERS[mechanism]] = read_credential(text)
        elif name.startswith(ACCESS_RULE):
            image.rules[new_id()] = rules_in([name])[0]
        elif name.startswith(CLIENT_QUOTA):
            image.quotas[tuple(entity_in(name).parts())] = json.loads(text)
    image.next_producer_id = int(content.properties.get(NEXT_PRODUCER_ID, "0"))
    return image, left


def _take_broker_configs(
    image: ClusterImage, broker: str, configs: Mapping[str, str], node_id: int
) -> list[str]:
    if broker not in {"", str(node_id)}:
        return [f"settings of broker {broker} (a former id of this broker)"] if configs else []
    kept = {name: text for name, text in configs.items() if not name.startswith(OWN_PREFIX)}
    if kept:
        image.configs[BROKER_CONFIGS, broker] = kept
    own = sorted(configs.keys() - kept)
    return [f"setting {name}: Kafka has none of that name" for name in own]


def content_of(
    image: ClusterImage, *, cluster_id: str, created_ms: int
) -> tuple[Content, list[str]]:
    """Return the metadata of a new Kohort broker, and descriptions of everything omitted.

    Args:
        created_ms: the creation time of the topics, which Kafka does not store.
    """
    left = [f"an access rule: {problem}" for problem in image.strange_rules]
    properties = {CHANGES: "1", CLUSTER_ID: cluster_id}
    if image.next_producer_id > 0:
        properties[NEXT_PRODUCER_ID] = str(image.next_producer_id)
    topics = []
    for topic in image.topics.values():
        configs = image.configs_of(TOPIC_CONFIGS, topic.name)
        known = {name: text for name, text in configs.items() if name in TOPIC_SETTINGS}
        left += [f"config {name} of topic {topic.name}" for name in sorted(configs.keys() - known)]
        topics.append(
            TopicRecord(
                topic_id=topic.topic_id,
                name=topic.name,
                partition_count=len(topic.partitions),
                created_ms=created_ms,
                configs=known,
            )
        )
    for (kind, name), configs in image.configs.items():
        if kind == BROKER_CONFIGS:
            properties[BROKER_CONFIGS_PROPERTY + name] = json.dumps(configs, sort_keys=True)
        elif kind == GROUP_CONFIGS:
            known = {key: text for key, text in configs.items() if key in KNOWN_OF_GROUPS}
            left += [f"config {key} of group {name}" for key in sorted(configs.keys() - known)]
            if known:
                properties[GROUP_CONFIGS_PROPERTY + name] = json.dumps(known, sort_keys=True)
        elif kind != TOPIC_CONFIGS:
            left.append(f"configs of {_KINDS.get(kind, f'resource type {kind}')} {name}")
    properties |= _credentials(image, left)
    properties |= dict.fromkeys(map(property_of_rule, image.rules.values()), "")
    properties |= _quotas(image, left)
    return Content(sorted(topics, key=lambda topic: topic.name), properties), left


_KINDS: Final = {16: "client metrics"}


def _credentials(image: ClusterImage, left: list[str]) -> Iterable[tuple[str, str]]:
    credentials = {}
    for (user, number), credential in image.credentials.items():
        mechanism = MECHANISMS.get(number)
        text = credential_text(credential)
        if mechanism is None or text is None:
            left.append(f"a credential of user {user} for mechanism {number}")
        else:
            credentials[property_of(CredentialKey(user, mechanism))] = text
    return credentials.items()


def _quotas(image: ClusterImage, left: list[str]) -> Iterable[tuple[str, str]]:
    quotas = {}
    for parts, limits in image.quotas.items():
        shown = ", ".join(f"{kind} {name or '(default)'}" for kind, name in parts)
        try:
            entity = entity_of(list(parts))
            for key, value in limits.items():
                check_limit(entity, key, value)
        except QuotaError as error:
            left.append(f"quotas of {shown}: {error}")
        else:
            quotas[property_of_quota(entity)] = json.dumps(limits)
    return quotas.items()
