"""Creates the parts of the broker and connects them.

Startup, in this order: lock the data directory, open the logs (recovering after a crash), replay
the groups if any are stored, and only then accept connections. Shutdown is the reverse: accept no
new connections, answer the pending requests, flush the connections, close groups and logs, and
write the clean-shutdown marker.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kohort.broker.assembly.addresses import (
    AddressError,
    Addresses,
    DescriptorShares,
    descriptor_shares,
)
from kohort.broker.assembly.connection_limits import ConnectionLimits, OverrideHostError
from kohort.broker.assembly.deferred_coordinators import MODULE as COORDINATORS
from kohort.broker.assembly.deferred_coordinators import DeferredCoordinators, HandlerLoading
from kohort.broker.assembly.http_listener import HttpListener
from kohort.broker.assembly.metrics_page import MetricsPage, scraped_broker
from kohort.broker.assembly.web import WebPorts, for_all_operators, open_web_ports
from kohort.broker.config import BrokerConfig, ConfigError, Endpoint, LoadedConfig
from kohort.broker.console.lag_history import LagHistory
from kohort.broker.console.paths import console_pages
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.dispatch.context import BrokerServices
from kohort.broker.dispatch.dispatcher import Dispatcher
from kohort.broker.dispatch.registry import Router
from kohort.broker.environment import Environment
from kohort.broker.handlers import SERVED, Handlers
from kohort.broker.http.lazy import group_pages, transaction_pages
from kohort.broker.metrics.broker_metrics import BrokerMetrics
from kohort.broker.network.connection.limits import Activity
from kohort.broker.network.server.server import NetworkServer
from kohort.broker.runtime import service_manager
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.memory.collector import nothing_collected
from kohort.broker.runtime.memory.reclaimer import MemoryReclaimer, limit_retained_memory
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.broker.security.client_quotas import make_quotas
from kohort.broker.security.errors import StoreError, UsersFileError
from kohort.broker.security.listeners import SecureListeners
from kohort.broker.security.users import Users
from kohort.broker.storage.errors import DataDirectoryLockedError, StorageError
from kohort.broker.storage.metadata.store import FILE_NAME, MetadataError
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.startup_progress import StartupProgress
from kohort.protocol.schema import VersionRange
from kohort.version import VERSION

if TYPE_CHECKING:
    from kohort.broker.assembly.coordinators import Coordinators
    from kohort.broker.console.source import ConsoleSource
    from kohort.broker.dispatch.access import Access
    from kohort.broker.groups_seen import GroupsSeen, Readable, RebalancesSeen, SharesSeen
    from kohort.broker.history.history import RebalanceHistory
    from kohort.broker.metrics.source import BrokerSource
    from kohort.broker.runtime.clock import Clock
    from kohort.broker.transactions.host import TransactionHost

logger = logging.getLogger(__name__)

SUPPORTED_FEATURES: Final = {
    "group.version": (0, 1),
    "join.reason": (1, 1),
    "share.version": (0, 2),
    "transaction.version": (0, 2),
}
"""Features in the ApiVersions response: consumer groups (KIP-848), Kohort's tagged field 7728
for join reasons, share groups (KIP-932), and the producers' transaction protocol (KIP-890)."""

GROUP_VERSION: Final = 1
"""The finalized level of `group.version`, if consumer groups are enabled."""

SHARE_VERSION: Final = 2
"""The finalized level of `share.version`, which includes dead-letter queues (KIP-1191)."""

JOIN_REASON_LEVEL: Final = 1
"""The finalized level of `join.reason`. Admin tools would offer to enable it if it were supported
but not finalized."""

_CANNOT_START: Final = (
    ConfigError,
    DataDirectoryLockedError,
    MetadataError,
    StorageError,
    StoreError,
    UsersFileError,
    AddressError,
    OverrideHostError,
    OSError,
)


class StartError(Exception):
    """The broker cannot start; the message says why, and what to do."""


class Broker:
    """A broker: starts it from a configuration, runs it and stops it."""

    def __init__(self, loaded: LoadedConfig, *, environment: Environment | None = None) -> None:
        self.config: BrokerConfig = loaded.config
        self._loaded = loaded
        self._environment = environment or Environment()
        self._clock = self._environment.clock
        self.background_tasks = BackgroundTasks(self._clock)
        self.metrics = BrokerMetrics()
        self.startup = StartupProgress(self._clock)
        self._is_stopping = False
        self.coordinators: DeferredCoordinators
        """The coordinators of groups and transactions. Set once `running` has been entered."""
        self.services: BrokerServices
        """The components that handlers use. Set once `running` has been entered."""
        self.endpoint: Endpoint
        """Address of the first listener, with its actual port."""
        self.network: NetworkServer
        """The open connections. Set once `running` has been entered."""
        self.router: Router
        """Maps requests to handlers. Set once `running` has been entered."""
        self.listeners: SecureListeners
        """The authenticators of the listeners. Set once `running` has been entered."""

    @cached_property
    def history(self) -> "RebalanceHistory":
        """The rebalance history; created with the coordinators."""
        from kohort.broker.assembly.coordinators import make_history  # noqa: PLC0415 - not for a start.

        return make_history(self.config, self._clock, self.background_tasks)

    def new_memory_reclaimer(self) -> MemoryReclaimer:
        """Create, without starting it, the memory reclaimer of a process with only this broker."""
        purgatory = self.services.purgatory
        return MemoryReclaimer(lambda: purgatory.waiting_count, self.coordinators.waiting_weight)

    async def run_until_signalled(self) -> None:
        """Run until SIGTERM or SIGINT. Raises StartError."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        # Ignored during the start, which reads all certificates anyway: by default, the signal
        # would end the process during a long recovery.
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        async with AsyncExitStack() as stack:
            # Restores normal garbage collection only after the broker has stopped: collections
            # would delay the shutdown of many groups.
            when_stopped = stack.enter_context(ExitStack())
            # Loading creates very many long-lived objects and hardly any cycles.
            with nothing_collected():
                await stack.enter_async_context(self.running())
            # The objects created until now are long-lived, so they are frozen, uncollected: a
            # collection would free some 1,700 objects and delay the first response by 20 ms.
            reclaimer = self.new_memory_reclaimer()
            reclaimer.start()
            when_stopped.callback(reclaimer.stop)
            service_manager.notify(service_manager.READY)
            loop.add_signal_handler(signal.SIGHUP, self.listeners.reload_soon)
            # On another thread, and after the start, because it imports ctypes, which takes 10 ms.
            later = loop.call_later(1, loop.run_in_executor, None, limit_retained_memory)
            await stop.wait()
            later.cancel()
            logger.info("Stopping")
            service_manager.notify(service_manager.STOPPING)
        logger.info("Stopped")

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[Broker]":
        """Serve clients inside the context; shut down cleanly at its end.

        Raises:
            StartError: the data directory, an address or a setting cannot be used.
        """
        async with AsyncExitStack() as stack:
            try:
                await self._start(stack)
            except _CANNOT_START as error:
                raise StartError(str(error)) from error
            yield self

    def _lock_data_directory(self, stack: AsyncExitStack) -> None:
        config = self.config
        for unused in config.named_directories[1:]:
            if (Path(unused) / FILE_NAME).exists():
                raise StartError(
                    f"several data directories are not supported, but {unused} contains a "
                    "broker's data: make it the first or the only one in log.dirs"
                )
        try:
            stack.enter_context(self._environment.lock(config.data_directory))
        except OSError as error:
            where = config.data_directory.absolute()
            raise StartError(f"the data directory {where} cannot be used: {error}") from error

    async def _start(self, stack: AsyncExitStack) -> None:
        """Start the components one by one; `stack` stops them in reverse order."""
        config = self.config
        self._lock_data_directory(stack)
        shares = descriptor_shares(config, self._environment)
        # Bound before the logs are opened, so that a port in use is reported before a long
        # recovery.
        addresses = Addresses(config, self._environment)
        stack.callback(addresses.close)
        addresses.bind()
        self.endpoint = addresses.bound[0]
        http_listener = HttpListener(self._loaded)
        web = await open_web_ports(
            stack,
            self._loaded,
            http_listener,
            self._why_not_ready,
            self.background_tasks.failing,
            self.startup,
        )
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
            background_tasks=self.background_tasks,
            progress=self.startup,
        )
        await topics.start()
        topics.settings.ports = web.ports()
        stack.push_async_callback(topics.close)
        self.coordinators = DeferredCoordinators(
            topics, partial(self._make_coordinators, topics, purgatory, executor)
        )
        stack.push_async_callback(self.coordinators.close)
        await self.coordinators.load(self.startup)
        self._users = Users(topics.disk.data.store)
        self.listeners = SecureListeners(
            topics.settings,
            executor,
            users=self._users,
            clock=self._clock,
            count=self.metrics.edge.authentication,
            background_tasks=self.background_tasks,
        )
        stack.callback(self.listeners.close)
        shell = PurgatoryShell(purgatory, self._clock)
        self.services = self._make_services(addresses, topics, purgatory)
        server, dispatcher = self._make_server(shares, executor)
        self.coordinators.set_after_answers(server.scheduler.after_writes)
        self.network = server
        stack.push_async_callback(self._stop_serving, server, dispatcher, shell)
        self.listeners.disabled.on_disconnect(server.disconnect)
        listeners = self.listeners.start(dispatcher, server.log, http_listener.tls)
        http_listener.authenticate_requests(self.listeners, self.services.access)
        for name, bound in addresses.sockets.items():
            await server.listen(bound, listeners[name])
        self._start_metrics(stack, web, executor)
        self._show_console(stack, web, addresses, executor)
        self.startup.phase = ""
        logger.info(
            "Kohort %s serves %s as node %d of cluster %s, data in %s",
            VERSION,
            ", ".join(str(endpoint) for endpoint in addresses.bound),
            config.node_id,
            self.services.cluster_id,
            config.data_directory.resolve(),
        )

    def _why_not_ready(self) -> str | None:
        """Return why clients cannot be served now, for health probes."""
        if self.startup.phase:
            return f"starting: {self.startup.text()}"
        return "stopping" if self._is_stopping else None

    async def _stop_serving(
        self, server: NetworkServer, dispatcher: Dispatcher, shell: PurgatoryShell
    ) -> None:
        self._is_stopping = True
        server.stop_serving()
        # Wait for running fsyncs first, so that requests waiting for fsyncs do not time out.
        await self.services.topics.wait_flushed(self.config.kohort_shutdown_timeout_ms)
        shell.close()
        await self.coordinators.stop_serving()
        await server.close(self.config.kohort_shutdown_timeout_ms)
        await dispatcher.close()

    def _make_coordinators(
        self, topics: TopicManager, purgatory: Purgatory, executor: Executor
    ) -> "Coordinators":
        from kohort.broker.assembly.coordinators import Coordinators  # noqa: PLC0415 - not for a start.

        return Coordinators(
            self.config,
            self._environment,
            topics,
            purgatory,
            self.background_tasks,
            executor,
            self.history,
            self.metrics.transactions.on_transaction_ended,
        )

    def _make_services(
        self,
        addresses: Addresses,
        topics: TopicManager,
        purgatory: Purgatory,
    ) -> BrokerServices:
        by_listener = {bound.listener: addresses.advertised(bound) for bound in addresses.bound}
        advertised = by_listener[self.endpoint.listener]
        level = self.config.kohort_transaction_version
        has_consumer_groups = "consumer" in self.config.group_coordinator_rebalance_protocols
        return BrokerServices(
            config=self.config,
            clock=self._clock,
            purgatory=purgatory,
            topics=topics,
            coordinators=self.coordinators.get,
            users=self._users,
            node_id=self.config.node_id,
            cluster_id=topics.cluster_id,
            advertised_host=advertised.host,
            advertised_port=advertised.port,
            advertised_by_listener={
                name: (endpoint.host, endpoint.port) for name, endpoint in by_listener.items()
            },
            apis={key: VersionRange.parse(api.advertised) for key, api in SERVED.items()},
            features=dict(SUPPORTED_FEATURES),
            finalized_features={
                **({"group.version": GROUP_VERSION} if has_consumer_groups else {}),
                "join.reason": JOIN_REASON_LEVEL,
                "share.version": SHARE_VERSION,
                **({"transaction.version": level} if level else {}),
            },
            quotas=make_quotas(self.config, topics.disk.data.store, topics.disk),
            access=self._make_access(topics),
            activity=Activity(self._clock),
            inflated_batch_bytes_max=self.config.kohort_inflated_batch_bytes_max,
        )

    def _make_access(self, topics: TopicManager) -> "Access | None":
        if not self.config.authorizer_class_name:
            return None
        from kohort.broker.dispatch.access import make_access  # noqa: PLC0415 - few brokers have one.

        names = {key: api.name for key, api in SERVED.items()}
        return make_access(self.config, topics, names, self._clock, self.metrics.edge.denied)

    def _make_server(
        self, shares: DescriptorShares, executor: Executor
    ) -> tuple[NetworkServer, Dispatcher]:
        log = PeerLog(logging.getLogger("kohort.broker.network"), self._clock)
        edge = self.metrics.edge
        self.router = Router(Handlers(), HandlerLoading(executor))
        self.services.log = log
        dispatcher = Dispatcher(self.router, self.services, edge, log)
        settings, quotas = self.services.topics.settings, self.services.quotas
        assert quotas is not None
        limits = ConnectionLimits(settings, shares.connections)
        server = NetworkServer(
            dispatcher,
            limits.now(),
            clock=self._clock,
            metrics=edge,
            log=log,
            activity=self.services.activity,
            limit_of_ip=quotas.quotas.connection_limit,
            senders_max=shares.senders,
        )
        limits.follow(server.set_limits)
        return server, dispatcher

    def _start_metrics(self, stack: AsyncExitStack, web: WebPorts, executor: Executor) -> None:
        self.metrics.edge.certificates = self.listeners.tls.values()
        self.metrics.edge.users_file = self.listeners.users_file
        self.metrics.start()
        stack.callback(self.metrics.stop)
        modules = (COORDINATORS,)
        scraped = scraped_broker(lambda: self._broker_source(executor), self.config)
        page = MetricsPage(scraped, executor, modules)
        stack.push_async_callback(page.close)
        web.metrics.add_pages(for_all_operators({"/metrics": page.answer}))
        transactions = transaction_pages(self._transactions_source, executor, modules)
        web.metrics.add_pages(for_all_operators(transactions))
        web.metrics.add_pages(group_pages(self._groups_source, executor, modules))

    def _transactions_source(self) -> "tuple[TransactionHost, TopicManager, Clock]":
        host = self.coordinators.get().transactions.host
        return host, self.services.topics, self._clock

    def _groups_source(self) -> "tuple[GroupsSeen, RebalancesSeen, SharesSeen]":
        coordinators = self.coordinators.get()
        return coordinators.groups.host, coordinators.history, coordinators.present_share

    def _broker_source(self, executor: Executor) -> "BrokerSource":
        from kohort.broker.metrics.source import BrokerSource  # noqa: PLC0415 - not for a start.

        services, coordinators = self.services, self.coordinators.get()
        return BrokerSource(
            metrics=self.metrics,
            topics=services.topics,
            groups=coordinators.groups.host,
            transactions=coordinators.transactions.host,
            shares=coordinators.present_share,
            history=coordinators.history,
            rebalances=coordinators.metrics,
            purgatory=services.purgatory,
            network=self.network,
            tasks=self.background_tasks,
            clock=self._clock,
            node_id=services.node_id,
            address=f"{services.advertised_host}:{services.advertised_port}",
            version=VERSION,
            startup=self.startup,
            executor=executor,
            offloaded_reads=services.offloaded_reads,
        )

    def _show_console(
        self, stack: AsyncExitStack, web: WebPorts, addresses: Addresses, executor: Executor
    ) -> None:
        lags, began_ms = LagHistory(), self._clock.wall_ms()
        console = console_pages(
            lambda: self._console_source(addresses, executor, lags, began_ms),
            executor,
            (COORDINATORS,),
            allows_write=self.config.kohort_console_write,
        )
        web.console.add_pages(for_all_operators(console))
        if web.console.is_open:
            work = partial(lags.run, self._groups_if_any, self._readable, self._clock)
            sampling = self.background_tasks.start("lag history", work)
            stack.push_async_callback(asyncio.wait, [sampling])
            stack.callback(sampling.cancel)
            # Closed first: while groups are unloaded, pages would show them as gone.
            stack.push_async_callback(web.console.close)

    def _groups_if_any(self) -> "GroupsSeen | None":
        created = self.coordinators.created
        return None if created is None else created.groups.host

    def _readable(self, topic: str, index: int) -> "Readable | None":
        from kohort.broker.metrics.partitions import readable  # noqa: PLC0415 - not for a start.

        return readable(self.services.topics, topic, index)

    def _console_source(
        self, addresses: Addresses, executor: Executor, lags: LagHistory, began_ms: int
    ) -> "ConsoleSource":
        from kohort.broker.console.holding import Holding  # noqa: PLC0415 - not for a start.
        from kohort.broker.console.source import ConsoleSource  # noqa: PLC0415 - as above.

        services, coordinators = self.services, self.coordinators.get()
        transactions = coordinators.transactions.host
        return ConsoleSource(
            **vars(self._broker_source(executor)),
            lags=lags,
            cluster_id=services.cluster_id,
            listeners=[
                {
                    "name": bound.listener,
                    "protocol": self.config.protocol_of(bound.listener),
                    "address": f"{bound.host}:{bound.port}",
                    "advertised": "{}:{}".format(*services.advertised_by_listener[bound.listener]),
                }
                for bound in addresses.bound
            ],
            holding=Holding(transactions, services.topics, self._clock),
            coordinator=coordinators.groups,
            allows_write=self.config.kohort_console_write,
            is_open_to_anonymous=self.listeners.is_open_to_anonymous(
                self.config.kohort_console_host
            ),
            began_ms=began_ms,
        )


def _report(doing: str, error: Exception) -> None:
    """Log an internal error of the purgatory, in a delayed operation or a timer."""
    logger.error("Internal error while %s", doing, exc_info=error)
