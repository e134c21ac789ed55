"""GET /api/broker: figures of the broker itself; GET /api/broker/configs: its settings."""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

from kohort.broker.config.current import ConfigEntry, ConfigSource
from kohort.broker.config.settings import HIDDEN
from kohort.broker.console.source import ConsoleSource
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.metrics.tally import HistogramTally
from kohort.broker.runtime.slices import Slice
from kohort.protocol.errors import ErrorCode

Json: TypeAlias = dict[str, Any]

ERRORS_MAX: Final = 50
CLIENTS_MAX: Final = 50
CONNECTIONS_COUNTED: Final = 5_000
"""Maximum connections in the counts per client; counting them takes some milliseconds."""

_NAMES: Final = {code.value: code.name for code in ErrorCode}
_MEMORY: Final = Path("/proc/self/statm")
_RESIDENT: Final = 1


async def wait_broker(source: ConsoleSource) -> Json:
    """Return the broker's figures. Counters are totals; the page computes rates from two
    responses.
    """
    loop = asyncio.get_running_loop()
    # The directory may be on a slow network file system.
    disk = await loop.run_in_executor(source.executor, _disk, source.topics.directory)
    return {**_broker_json(source), "disk": disk, "listeners": source.listeners, **_clients(source)}


def _disk(directory: Path) -> Json:
    path = str(directory.absolute())
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return {"directory": path, "used_bytes": None, "free_bytes": None}
    return {"directory": path, "used_bytes": usage.used, "free_bytes": usage.free}


def _clients(source: ConsoleSource) -> Json:
    counts = Counter(
        (
            connection.session.listener,
            str(connection.session.principal),
            connection.peer_host.removeprefix("/"),
            connection.client_software,
        )
        for connection in islice(source.network.connections(), CONNECTIONS_COUNTED)
    )
    names = "listener", "principal", "host", "software"
    return {
        "client_count": len(counts),
        "clients": [
            {**dict(zip(names, key, strict=True)), "connections": count}
            for key, count in counts.most_common(CLIENTS_MAX)
        ],
    }


async def wait_configs(entries: Iterable[ConfigEntry], time_slice: Slice) -> list[Json]:
    """Return configs by name, with their sources; secrets are hidden."""
    listed = []
    for entry in entries:
        listed.append(
            {
                "name": entry.name,
                "value": HIDDEN if entry.is_sensitive else entry.value,
                "source": entry.source.name,
            }
        )
        await time_slice.pause()
    return sorted(listed, key=lambda config: str(config["name"]))


async def wait_set_configs(source: ConsoleSource) -> Json:
    """Return the broker's settings that were set, at the start or at run time."""
    settings = source.topics.settings
    listed = await wait_configs(settings.describe_broker(), Slice(source.clock, SLICE_MS))
    return {
        "at_ms": source.clock.wall_ms(),
        "configs": [config for config in listed if config["source"] != ConfigSource.DEFAULT.name],
    }


def _broker_json(source: ConsoleSource) -> Json:
    edge, lag, network = source.metrics.edge, source.metrics.loop_lag, source.network
    settings = source.topics.settings.config
    return {
        "at_ms": source.clock.wall_ms(),
        "version": source.version,
        "node_id": source.node_id,
        "cluster_id": source.cluster_id,
        "address": source.address,
        "began_ms": source.began_ms,
        "connections": network.connection_count,
        "connections_max": settings.max_connections,
        "received_bytes": edge.received_bytes,
        "sent_bytes": edge.sent_bytes,
        "waiting_requests": edge.waiting_count,
        "loop_lag": {
            "recent_maximum_ms": _ms(lag.recent_maximum_s),
            "bounds_ms": [_ms(bound) for bound in lag.lag.bounds],
            "counts": list(lag.lag.counts),
        },
        "memory": {
            "resident_bytes": _resident_bytes(),
            "requests_bytes": network.memory.used_bytes,
            "requests_bytes_max": settings.queued_max_request_bytes,
            "unsent_bytes": network.unsent.total_bytes,
            "parked_bytes": source.purgatory.held_bytes,
            "history_bytes": source.history.stats()["memory_bytes"],
            "history_bytes_max": settings.kohort_rebalance_history_memory_bytes,
        },
        "parked": {kind: counts["delayed"] for kind, counts in source.purgatory.stats().items()},
        "groups": len(source.groups.group_ids()),
        "topics": len(source.topics.all()),
        "requests": _requests(source),
        "errors": _errors(source),
    }


def _requests(source: ConsoleSource) -> list[Json]:
    by_api: dict[str, HistogramTally] = {}
    for meter in source.metrics.edge.request_meters():
        total = by_api.get(meter.api)
        if total is None:
            total = by_api[meter.api] = HistogramTally(meter.duration.bounds)
        total.add(meter.duration)
    return [
        {"api": api, "count": sum(total.counts), "total_ms": _ms(total.total)}
        for api, total in by_api.items()
    ]


def _errors(source: ConsoleSource) -> list[Json]:
    counts: dict[tuple[str, int], int] = {}
    for meter in source.metrics.edge.request_meters():
        for code, count in meter.errors.items():
            key = meter.api, int(code)
            counts[key] = counts.get(key, 0) + count
    most = sorted(counts.items(), key=lambda item: -item[1])[:ERRORS_MAX]
    return [
        {"api": api, "error": _NAMES.get(code, str(code)), "count": count}
        for (api, code), count in most
    ]


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 3)


def _resident_bytes() -> int | None:
    """Return the memory of the process; None if the system does not report it."""
    try:
        fields = _MEMORY.read_bytes().split()
        return int(fields[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
