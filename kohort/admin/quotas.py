"""Lists and changes limits on clients (KIP-546)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kohort.admin.cluster import Cluster, check
from kohort.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)

Parts = tuple[tuple[str, str | None], ...]
"""Types and names of an entity; None as name means the default of the type."""


class Limits(NamedTuple):
    entity: Parts
    values: dict[str, float]


def list_limits(cluster: Cluster) -> list[Limits]:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer: DescribeClientQuotasResponse = cluster.ask(cluster.controller(), request)
    check(answer.error_code, "the limits cannot be listed")
    return [
        Limits(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def change_limits(
    cluster: Cluster, entity: Parts, values: Mapping[str, float], removed: Sequence[str] = ()
) -> None:
    ops = [OpData(key=key, value=value, remove=False) for key, value in values.items()]
    ops += [OpData(key=key, value=0.0, remove=True) for key in removed]
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = AlterClientQuotasRequest(
        entries=[EntryData(entity=parts, ops=ops)], validate_only=False
    )
    answer: AlterClientQuotasResponse = cluster.ask(cluster.controller(), request)
    for result in answer.entries:
        check(result.error_code, "the limits", result.error_message)
