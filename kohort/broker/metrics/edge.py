"""Collectors for requests, connections and the purgatory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from kohort.broker.metrics import catalogue
from kohort.broker.metrics.families import Family, single
from kohort.broker.metrics.metric_info import MetricInfo
from kohort.broker.metrics.requests import DURATION_BOUNDS_S, EdgeMetrics
from kohort.broker.metrics.tally import HistogramTally
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.core.purgatory import Purgatory
    from kohort.broker.network.server.server import NetworkServer

_ERROR_NAMES = {code.value: code.name for code in ErrorCode}


class EdgeCollector:
    """Collector of requests and connections."""

    def __init__(self, edge: EdgeMetrics) -> None:
        self._edge = edge

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_requests()
        edge = self._edge
        yield _by_reason(catalogue.REQUESTS_REJECTED, edge.rejected)
        denied = Family(catalogue.ACCESS_DENIED)
        for (api, kind), count in edge.denied.items():
            denied.add(count, api, kind)
        yield denied
        yield single(catalogue.REQUESTS_WAITING, edge.waiting_count)
        yield single(catalogue.CONNECTIONS, edge.connection_count)
        yield single(catalogue.CONNECTIONS_OPENED, edge.opened_count)
        yield _by_reason(catalogue.CONNECTIONS_REFUSED, edge.refused)
        yield _by_reason(catalogue.CONNECTIONS_CLOSED, edge.closed)
        authentications = Family(catalogue.AUTHENTICATIONS)
        for (listener, mechanism, result), count in edge.authentications.items():
            authentications.add(count, listener, mechanism, result)
        yield authentications
        expiry = Family(catalogue.CERTIFICATE_EXPIRY)
        failures = Family(catalogue.TLS_RELOAD_FAILURES)
        for certificate in edge.certificates:
            expiry.add(certificate.expires_s, certificate.listener)
            failures.add(certificate.reload_failures, certificate.listener)
        yield expiry
        yield failures
        users_file_failures = Family(catalogue.USERS_FILE_FAILURES)
        if edge.users_file is not None:
            users_file_failures.add(edge.users_file.reload_failures)
        yield users_file_failures
        yield single(catalogue.RECEIVED_BYTES, edge.received_bytes)
        yield single(catalogue.SENT_BYTES, edge.sent_bytes)

    def _collect_requests(self) -> Iterator[Metric]:
        requests = Family(catalogue.REQUESTS)
        durations: dict[str, HistogramTally] = {}
        errors: Counter[tuple[str, int]] = Counter()
        for meter in self._edge.request_meters():
            requests.add(sum(meter.duration.counts), meter.api, str(meter.version))
            total = durations.setdefault(meter.api, HistogramTally(DURATION_BOUNDS_S))
            total.add(meter.duration)
            for code, count in meter.errors.items():
                errors[meter.api, int(code)] += count
        yield requests
        duration = Family(catalogue.REQUEST_DURATION)
        for api, total in durations.items():
            duration.add_histogram(total, api)
        yield duration
        by_error = Family(catalogue.REQUEST_ERRORS)
        for (api, code), count in errors.items():
            by_error.add(count, api, _ERROR_NAMES.get(code, str(code)))
        yield by_error


class MemoryCollector:
    """Collector of the memory held by requests and responses."""

    def __init__(self, network: NetworkServer) -> None:
        self._network = network

    def collect(self) -> Iterator[Metric]:
        yield single(catalogue.REQUEST_BYTES_HELD, self._network.memory.used_bytes)
        yield single(catalogue.RESPONSE_BYTES_HELD, self._network.unsent.total_bytes)


class PurgatoryCollector:
    """Collector of waiting operations, by Kafka's name of the operation type."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory

    def collect(self) -> Iterator[Metric]:
        size = Family(catalogue.PURGATORY_SIZE)
        delayed = Family(catalogue.NUM_DELAYED_OPERATIONS)
        for kind, counts in self._purgatory.stats().items():
            size.add(counts["watched"], kind)
            delayed.add(counts["delayed"], kind)
        yield size
        yield delayed
        yield single(catalogue.PURGATORY_HELD_BYTES, self._purgatory.held_bytes)


def _by_reason(info: MetricInfo, counts: dict[str, int]) -> Family:
    family = Family(info)
    for reason, count in counts.items():
        family.add(count, str(reason))
    return family
