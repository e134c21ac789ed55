"""Wires the broker together; the only file that knows all the parts.

Start, in this order, so that nothing is promised before it can be kept: lock the data directory,
open the logs (recovering what a crash left), replay the groups, and only then accept connections.
Stop is the reverse: accept nothing new, answer what waits, send what is written, close groups and
logs, and leave the clean-shutdown mark.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import chain
from typing import Final

from kohort.broker.config import BrokerConfig, ConfigError, Endpoint, LoadedConfig
from kohort.broker.config.endpoints import EVERY_INTERFACE, parse_ip_overrides
from kohort.broker.coordinator.coordinator import CoordinatorConfig, GroupCoordinator
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.coordinator.log.topic_log import TopicOffsetsLog
from kohort.broker.core.group.classic.group import ClassicGroup
from kohort.broker.core.group.config import GroupConfig
from kohort.broker.core.partition.verdict import ValidationDepth, ValidationPolicy
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.transaction.requests import TransactionConfig
from kohort.broker.dispatch.access import make_access, make_quotas
from kohort.broker.dispatch.context import BrokerServices
from kohort.broker.dispatch.dispatcher import Dispatcher
from kohort.broker.dispatch.registry import (
    Api,
    Router,
    load_handlers,
)
from kohort.broker.environment import Environment
from kohort.broker.history.history import HistoryLimits, RebalanceHistory
from kohort.broker.history.topic import TopicHistoryLog
from kohort.broker.http.groups import group_pages
from kohort.broker.http.health import health_pages
from kohort.broker.http.server import HttpServer
from kohort.broker.http.transaction_pages import TransactionPages
from kohort.broker.metrics.broker_metrics import BrokerMetrics, MetricsSource
from kohort.broker.metrics.page import MetricsPage
from kohort.broker.network.last_fetches import LastFetches
from kohort.broker.network.limits import NetworkLimits
from kohort.broker.network.listening import (
    close_all,
    connections_within,
    raise_descriptor_limit,
)
from kohort.broker.network.peer_log import PeerLog
from kohort.broker.network.server import NetworkServer
from kohort.broker.runtime import service_manager
from kohort.broker.runtime.memory.collector import nothing_collected
from kohort.broker.runtime.memory.keeper import MemoryKeeper
from kohort.broker.runtime.memory.trim import limit_retained_memory
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.security.listeners import SecureListeners
from kohort.broker.security.tls_context import StoreError
from kohort.broker.security.users import Users
from kohort.broker.storage.errors import DataDirectoryLockedError, StorageError
from kohort.broker.storage.filesystem import OPEN_FILES_MAX
from kohort.broker.storage.metadata.store import MetadataError
from kohort.broker.topics.internal import internal_topic_configs
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import TRANSACTION_STATE
from kohort.broker.topics.partition import Partition
from kohort.broker.transactions.host import TransactionHost, TransactionsConfig
from kohort.broker.transactions.log import TopicTransactionLog
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.broker.transactions.reconciling import find_epochs, find_open
from kohort.broker.transactions.transactions import Transactions
from kohort.broker.version import VERSION

logger = logging.getLogger(__name__)

FEW_CONNECTIONS: Final = 1_000
"""Where the operating system allows fewer, the operator should know."""

METRICS_PORT_TRIES: Final = 20
"""Ports that are tried, upward from the default, if none was set."""

SUPPORTED_FEATURES: Final = {"join.reason": (1, 1), "transaction.version": (0, 2)}
"""What ApiVersions tells beside the apis: JoinGroup's tag 7728 is understood, and producers choose
their flow by the level of the other (KIP-890)."""

_CANNOT_START: Final = (
    ConfigError,
    DataDirectoryLockedError,
    MetadataError,
    StorageError,
    StoreError,
    OSError,
)


class StartError(Exception):
    """The broker cannot start; the text says why and what to do."""


class Broker:
    """One broker, from its configuration to its last flush."""

    def __init__(self, loaded: LoadedConfig, *, environment: Environment | None = None) -> None:
        self.config: BrokerConfig = loaded.config
        self._loaded = loaded
        self._environment = environment or Environment()
        self._clock = self._environment.clock
        self.metrics = BrokerMetrics(self.config.kohort_metrics_groups_max)
        self.history = self._make_history()
        """Why the groups rebalanced."""
        self.history.add_listener(self.metrics.rebalances.on_record)
        self._not_ready: str | None = "starting"
        """Why clients cannot be served now, for probes."""
        self.services: BrokerServices
        """Set once `running` has been entered."""
        self.endpoint: Endpoint
        """Where the first listener is, with the port it really has."""
        self._connections_max: int
        self.network: NetworkServer
        """The open connections. Set once `running` has been entered."""
        self.router: Router
        """Which handler answers what. Set once `running` has been entered."""
        self.listeners: SecureListeners
        """What clients have to show. Set likewise."""

    def new_memory_keeper(self) -> MemoryKeeper:
        """For the process that this broker has to itself; not started yet."""
        purgatory, history = self.services.purgatory, self.history
        return MemoryKeeper(lambda: purgatory.waiting_count, lambda: history.waiting_weight)

    async def run_until_signalled(self) -> None:
        """Run until SIGTERM or SIGINT. Raises StartError."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with AsyncExitStack() as stack:
            # Loading makes very many objects that stay, and hardly a cycle.
            with nothing_collected():
                await stack.enter_async_context(self.running())
            # What is there now stays; the collector need not look at it again. A collection before
            # would find some 1,700 objects and delay the first answer by 20 ms.
            keeper = self.new_memory_keeper()
            keeper.start()
            service_manager.tell(service_manager.READY)
            loop.add_signal_handler(signal.SIGHUP, self.listeners.reload_soon)
            # Loading what that needs takes 10 ms, which the first clients need not wait for.
            later = loop.call_later(1, loop.run_in_executor, None, limit_retained_memory)
            await stop.wait()
            later.cancel()
            keeper.stop()
            logger.info("Stopping")
            service_manager.tell(service_manager.STOPPING)
        logger.info("Stopped")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Broker]:
        """The broker serves inside of the context and is cleanly stopped at its end.

        Raises:
            StartError: the data directory, an address or a setting cannot be used.
        """
        async with AsyncExitStack() as stack:
            try:
                await self._start(stack)
            except _CANNOT_START as error:
                raise StartError(str(error)) from error
            yield self

    async def _start(self, stack: AsyncExitStack) -> None:
        """Start part by part; `stack` stops them in the reverse order."""
        config = self.config
        try:
            stack.enter_context(self._environment.lock(config.data_directory))
        except OSError as error:
            where = config.data_directory.absolute()
            raise StartError(f"the data directory {where} cannot be used: {error}") from error
        self._connections_max = self._limit_connections()
        # Before the logs are opened: a port that is taken should not cost a recovery.
        sockets = self._bind(stack)
        http = await self._start_http(stack)
        purgatory = Purgatory(report=_report)
        executor = self._environment.new_executor()
        stack.callback(executor.shutdown)
        topics = TopicManager(
            self._loaded,
            clock=self._clock,
            purgatory=purgatory,
            executor=executor,
            files=self._environment.files,
            store=self._environment.metadata,
            new_uuid=self._environment.new_uuid,
        )
        await topics.start()
        stack.push_async_callback(topics.close)
        # Before the groups, which go on with the numbers of its records.
        await self.history.start(TopicHistoryLog(topics, config, executor), executor)
        stack.push_async_callback(self.history.close)
        groups = self._make_groups(topics, purgatory)
        await groups.host.start()
        stack.push_async_callback(groups.host.close)
        transactions = await self._start_transactions(stack, topics, groups, purgatory)
        self.history.end_recovery()
        self._users = Users(topics.disk.data.store)
        self.listeners = SecureListeners(
            topics.settings,
            executor,
            users=self._users,
            clock=self._clock,
            count=self.metrics.edge.authentication,
        )
        stack.callback(self.listeners.close)
        shell = PurgatoryShell(purgatory, self._clock)
        apis = load_handlers()
        self.services = self._make_services(apis, topics, groups, transactions, purgatory)
        server, dispatcher = self._make_server(apis)
        self.network = server
        stack.push_async_callback(self._stop_serving, server, dispatcher, shell)
        listeners = self.listeners.start(dispatcher, server.log)
        self.metrics.edge.certificates = self.listeners.tls.values()
        for name, bound in sockets.items():
            await server.listen(bound, listeners[name])
        self._start_metrics(stack, http, server, transactions, executor)
        self._not_ready = None
        logger.info(
            "Kohort %s serves %s as node %d of cluster %s, data in %s",
            VERSION,
            ", ".join(str(endpoint) for endpoint in self._bound_endpoints),
            config.node_id,
            self.services.cluster_id,
            config.data_directory.resolve(),
        )

    async def _stop_serving(
        self, server: NetworkServer, dispatcher: Dispatcher, shell: PurgatoryShell
    ) -> None:
        """Answer what waits, then close the connections."""
        self._not_ready = "stopping"
        server.stop_serving()
        # Before requests that wait for an fsync are told that it came too late.
        await self.services.topics.wait_flushed(self.config.kohort_shutdown_timeout_ms)
        shell.close()
        await self.services.transactions.host.close()
        await self.services.groups.host.close()
        await server.close(self.config.kohort_shutdown_timeout_ms)
        await dispatcher.close()

    def _limit_connections(self) -> int:
        """How many connections there can be by the files that this process may open."""
        descriptors = raise_descriptor_limit()
        possible = connections_within(descriptors, OPEN_FILES_MAX)
        if possible < min(self.config.max_connections, FEW_CONNECTIONS):
            logger.warning(
                "At most %d connections, because this process may open %d files (ulimit -n)",
                possible,
                descriptors,
            )
        return possible

    def _bind(self, stack: AsyncExitStack) -> dict[str, list[socket.socket]]:
        """Take the addresses of all listeners, by name, without listening yet."""
        sockets: dict[str, list[socket.socket]] = {}
        stack.callback(lambda: close_all(chain(*sockets.values())))
        self._bound_endpoints = []
        for endpoint in self.config.listener_endpoints:
            try:
                bound = self._environment.bind(
                    endpoint.host,
                    endpoint.port,
                    send_buffer_bytes=self.config.socket_send_buffer_bytes,
                    receive_buffer_bytes=self.config.socket_receive_buffer_bytes,
                )
            except OSError as error:
                raise StartError(f"listener {endpoint} cannot be opened: {error}") from error
            sockets[endpoint.listener] = bound
            port = bound[0].getsockname()[1]
            self._bound_endpoints.append(Endpoint(endpoint.listener, endpoint.host, port))
        self.endpoint = self._bound_endpoints[0]
        return sockets

    def _advertised(self, bound: Endpoint) -> Endpoint:
        """What clients are told to connect to who came by that listener.

        A listener that is not advertised leads to the first that is.
        """
        advertised = self.config.advertised_endpoints
        matching = [one for one in advertised if one.listener == bound.listener]
        chosen = (matching or advertised)[0]
        host = socket.gethostname() if chosen.host in EVERY_INTERFACE else chosen.host
        return Endpoint(chosen.listener, host, chosen.port or bound.port)

    def _make_history(self) -> RebalanceHistory:
        config = self.config
        limits = HistoryLimits(
            size=config.kohort_rebalance_history_size,
            memory_bytes=config.kohort_rebalance_history_memory_bytes,
            removed_retention_ms=config.kohort_rebalance_history_retention_ms,
        )
        return RebalanceHistory(limits, self._clock)

    def _make_groups(self, topics: TopicManager, purgatory: Purgatory) -> GroupCoordinator:
        config = self.config

        def partition_count(name: str) -> int | None:
            topic = topics.get(name)
            return None if topic is None else len(topic.partitions)

        def topic_id(name: str) -> bytes | None:
            topic = topics.get(name)
            return None if topic is None else topic.topic_id

        group_config = GroupConfig(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max_units=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            pending_ids_max=config.kohort_group_pending_ids_max,
            metadata_bytes_max=config.kohort_group_metadata_bytes_max,
        )
        host = GroupHost(
            CoordinatorConfig(
                group_config,
                commit_timeout_ms=config.offsets_commit_timeout_ms,
                sweep_interval_ms=config.offsets_retention_check_interval_ms,
                groups_max=config.kohort_groups_max,
                inbox_max=config.kohort_group_inbox_max,
            ),
            log=TopicOffsetsLog(topics, config),
            purgatory=purgatory,
            clock=self._clock,
            new_group=partial(
                ClassicGroup,
                config=group_config,
                new_member_id=lambda prefix: f"{prefix}-{self._environment.new_uuid()}",
                partition_count=partition_count,
                grown_since=topics.changes.grown_since,
            ),
            topic_id=topic_id,
            observers=(self.metrics.rebalances, self.history),
        )
        topics.changes.on_topics_deleted(host.forget_topics)
        return GroupCoordinator(host)

    async def _start_transactions(
        self,
        stack: AsyncExitStack,
        topics: TopicManager,
        groups: GroupCoordinator,
        purgatory: Purgatory,
    ) -> Transactions:
        """Load transactional ids, and complete what was decided."""
        config = self.config
        log = InternalLog(
            topics,
            TRANSACTION_STATE,
            partition_count=config.transaction_state_log_num_partitions,
            configs=internal_topic_configs(TRANSACTION_STATE, config),
        )
        host = TransactionHost(
            TransactionsConfig(
                TransactionConfig(
                    max_timeout_ms=config.transaction_max_timeout_ms,
                    id_expiration_ms=config.transactional_id_expiration_ms,
                ),
                ids_max=config.kohort_transactional_ids_max,
                timeout_check_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                expiry_check_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            ),
            log=TopicTransactionLog(log),
            markers=PartitionMarkers(topics.partition, groups, self._clock),
            purgatory=purgatory,
            clock=self._clock,
            new_producer_id=topics.next_producer_id,
        )
        host.counts.observer = self.metrics.transactions
        stack.push_async_callback(host.close)
        # All partitions are open after an unclean stop; after a clean one nothing was lost.
        was_clean = topics.disk.data.was_clean

        def opened() -> list[Partition]:
            return [] if was_clean else list(topics.disk.opened())

        await host.start(lambda: find_open(opened()), lambda: find_epochs(opened()))
        settings = topics.settings
        return Transactions(
            host, verifies=lambda: settings.config.transaction_partition_verification_enable
        )

    def _make_services(
        self,
        apis: Mapping[int, Api],
        topics: TopicManager,
        groups: GroupCoordinator,
        transactions: Transactions,
        purgatory: Purgatory,
    ) -> BrokerServices:
        advertised = self._advertised(self.endpoint)
        by_listener = {one.listener: self._advertised(one) for one in self._bound_endpoints}
        level = self.config.kohort_transaction_version
        return BrokerServices(
            config=self.config,
            clock=self._clock,
            purgatory=purgatory,
            topics=topics,
            groups=groups,
            transactions=transactions,
            users=self._users,
            history=self.history,
            node_id=self.config.node_id,
            cluster_id=topics.cluster_id,
            advertised_host=advertised.host,
            advertised_port=advertised.port,
            advertised_by_listener={
                name: (endpoint.host, endpoint.port) for name, endpoint in by_listener.items()
            },
            apis={key: api.advertised for key, api in apis.items()},
            features=dict(SUPPORTED_FEATURES),
            finalized_features={"transaction.version": level} if level else {},
            quotas=make_quotas(self.config, topics),
            access=make_access(
                self.config,
                topics,
                {key: api.name for key, api in apis.items()},
                self._clock,
                self.metrics.edge.denied,
            ),
            fetches=LastFetches(self._clock),
            validation=ValidationPolicy(
                ValidationDepth(self.config.kohort_validate_records),
                self.config.kohort_inflated_batch_bytes_max,
            ),
        )

    def _make_server(self, apis: Mapping[int, Api]) -> tuple[NetworkServer, Dispatcher]:
        log = PeerLog(logging.getLogger("kohort.broker.network"), self._clock)
        edge = self.metrics.edge
        self.router = Router(apis)
        dispatcher = Dispatcher(self.router, self.services, edge, log)
        settings = self.services.topics.settings
        server = NetworkServer(
            dispatcher,
            self._network_limits(settings.config),
            clock=self._clock,
            metrics=edge,
            log=log,
            fetches=self.services.fetches,
        )
        settings.on_change(lambda: server.set_limits(self._network_limits(settings.config)))
        return server, dispatcher

    def _network_limits(self, config: BrokerConfig) -> NetworkLimits:
        return NetworkLimits(
            socket_request_max_bytes=config.socket_request_max_bytes,
            queued_max_request_bytes=config.queued_max_request_bytes,
            kohort_unsent_max_bytes=config.kohort_unsent_max_bytes,
            socket_listen_backlog_size=config.socket_listen_backlog_size,
            max_connections=min(config.max_connections, self._connections_max),
            max_connections_per_ip=config.max_connections_per_ip,
            max_connections_per_ip_overrides=parse_ip_overrides(
                config.max_connections_per_ip_overrides
            ),
            connections_max_idle_ms=config.connections_max_idle_ms,
            kohort_frame_timeout_ms=config.kohort_frame_timeout_ms,
            kohort_authentication_timeout_ms=config.kohort_authentication_timeout_ms,
            kohort_unauthenticated_connections_max=config.kohort_unauthenticated_connections_max,
        )

    async def _start_http(self, stack: AsyncExitStack) -> HttpServer:
        """Answer probes before the logs are open, which may take a while after a crash."""
        host, port = self.config.kohort_metrics_host, self.config.kohort_metrics_port
        server = HttpServer(
            health_pages(lambda: self._not_ready),
            hosts={
                name.lower()
                for name in (host, socket.gethostname(), *self.config.kohort_http_hosts)
            },
        )
        if port < 0:
            return server
        # An operator who set a port will look for the metrics there and nowhere else.
        tries = 1 if "kohort.metrics.port" in self._loaded.given else METRICS_PORT_TRIES
        try:
            await server.start(host, port, tries=tries)
        except OSError as error:
            tried = f" up to {port + tries - 1}" if tries > 1 else ""
            raise StartError(
                f"kohort.metrics.host={host}, kohort.metrics.port={port}{tried}: {error}; another "
                "port, 0 for any free one, or -1 for none"
            ) from error
        stack.push_async_callback(server.close)
        where = host or "every interface"
        if port in {0, server.port}:
            logger.info("Metrics are on port %d of %s", server.port, where)
        else:
            logger.warning(
                "Metrics are on port %d of %s, because port %d is taken, by another broker "
                "perhaps; kohort.metrics.port sets one that stays",
                server.port,
                where,
                port,
            )
        return server

    def _start_metrics(
        self,
        stack: AsyncExitStack,
        http: HttpServer,
        network: NetworkServer,
        transactions: Transactions,
        executor: Executor,
    ) -> None:
        self.metrics.start()
        stack.callback(self.metrics.stop)
        services = self.services
        source = MetricsSource(
            topics=services.topics,
            groups=services.groups.host,
            transactions=transactions.host,
            history=self.history,
            purgatory=services.purgatory,
            network=network,
            clock=self._clock,
            node_id=services.node_id,
            address=f"{services.advertised_host}:{services.advertised_port}",
            version=VERSION,
        )
        page = MetricsPage(self.metrics, source, self.config, executor)
        stack.push_async_callback(page.close)
        http.add_pages({"/metrics": page.answer})
        http.add_pages(group_pages(services.groups, self.history, executor))
        http.add_pages(TransactionPages(transactions.host, services.topics, self._clock).pages())


def _report(doing: str, error: Exception) -> None:
    """A fault of ours in a delayed operation; its client has been answered."""
    logger.error("A fault of ours while %s", doing, exc_info=error)
