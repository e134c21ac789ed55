"""Broker settings that Kafka 4.4 has and that change nothing here, each with the reason.

They are accepted, so that a server.properties made for Kafka can be used as it is, and named once
in the log at start when they are set. What it would be wrong to pass over is in `REFUSED`.
"""

from collections.abc import Mapping
from typing import Final

_BY_REASON: Final = {
    "Tiered storage, which is not supported.": """
        follower.fetch.last.tiered.offset.enable
        remote.fetch.max.wait.ms
        remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes
        remote.log.index.file.cache.ttl.ms
        remote.log.manager.copier.thread.pool.size
        remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size
        remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size
        remote.log.manager.task.interval.ms
        remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms
        remote.log.manager.task.retry.jitter
        remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes
        remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name
        remote.log.reader.max.pending.tasks
        remote.log.reader.threads
        remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix
        remote.log.storage.system.enable
    """,
    "Share groups (KIP-932), which are not supported.": """
        errors.deadletterqueue.auto.create.topics.enable
        errors.deadletterqueue.topic.name.prefix
        group.share.assignment.interval.ms
        group.share.assignor.offload.enable
        group.share.assignors
        group.share.delivery.count.limit
        group.share.dlq.manager.class.name
        group.share.heartbeat.interval.ms
        group.share.initialize.retry.interval.ms
        group.share.max.assignment.interval.ms
        group.share.max.delivery.count.limit
        group.share.max.heartbeat.interval.ms
        group.share.max.partition.max.record.locks
        group.share.max.record.lock.duration.ms
        group.share.max.session.timeout.ms
        group.share.max.share.sessions
        group.share.max.size
        group.share.min.assignment.interval.ms
        group.share.min.delivery.count.limit
        group.share.min.heartbeat.interval.ms
        group.share.min.partition.max.record.locks
        group.share.min.record.lock.duration.ms
        group.share.min.session.timeout.ms
        group.share.partition.max.record.locks
        group.share.persister.class.name
        group.share.record.lock.duration.ms
        group.share.session.timeout.ms
        share.coordinator.append.linger.ms
        share.coordinator.cached.buffer.max.bytes
        share.coordinator.cold.partition.snapshot.interval.ms
        share.coordinator.load.buffer.size
        share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec
        share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.num.partitions
        share.coordinator.state.topic.prune.interval.ms
        share.coordinator.state.topic.replication.factor
        share.coordinator.state.topic.segment.bytes
        share.coordinator.threads
        share.coordinator.write.timeout.ms
        share.fetch.purgatory.purge.interval.requests
    """,
    "Streams groups (KIP-1071), which are not supported.": """
        group.streams.acceptable.recovery.lag
        group.streams.assignment.interval.ms
        group.streams.assignor.offload.enable
        group.streams.assignors
        group.streams.heartbeat.interval.ms
        group.streams.initial.rebalance.delay.ms
        group.streams.max.assignment.interval.ms
        group.streams.max.heartbeat.interval.ms
        group.streams.max.session.timeout.ms
        group.streams.max.size
        group.streams.max.standby.replicas
        group.streams.max.warmup.replicas
        group.streams.min.assignment.interval.ms
        group.streams.min.heartbeat.interval.ms
        group.streams.min.session.timeout.ms
        group.streams.min.task.offset.interval.ms
        group.streams.num.standby.replicas
        group.streams.num.warmup.replicas
        group.streams.rack.aware.assignment.tags
        group.streams.session.timeout.ms
        group.streams.task.offset.interval.ms
        group.streams.topology.description.plugin.class
    """,
    "The newer consumer group protocol (KIP-848), which is not supported yet.": """
        group.consumer.assignment.interval.ms
        group.consumer.assignor.offload.enable
        group.consumer.assignors
        group.consumer.heartbeat.interval.ms
        group.consumer.max.assignment.interval.ms
        group.consumer.max.heartbeat.interval.ms
        group.consumer.max.session.timeout.ms
        group.consumer.max.size
        group.consumer.migration.policy
        group.consumer.min.assignment.interval.ms
        group.consumer.min.heartbeat.interval.ms
        group.consumer.min.session.timeout.ms
        group.consumer.regex.refresh.interval.ms
        group.consumer.session.timeout.ms
        group.coordinator.rebalance.protocols
    """,
    "Transactions, which are not supported yet.": """
        add.partitions.to.txn.retry.backoff.max.ms
        add.partitions.to.txn.retry.backoff.ms
        transaction.abort.timed.out.transaction.cleanup.interval.ms
        transaction.max.timeout.ms
        transaction.partition.verification.enable
        transaction.remove.expired.transaction.cleanup.interval.ms
        transaction.state.log.load.buffer.size
        transaction.state.log.min.isr
        transaction.state.log.num.partitions
        transaction.state.log.replication.factor
        transaction.state.log.segment.bytes
        transaction.two.phase.commit.enable
        transactional.id.expiration.ms
    """,
    "TLS, SASL and tokens, which are not supported yet; listeners that need them are refused.": """
        connection.failed.authentication.delay.ms
        connections.max.reauth.ms
        delegation.token.expiry.check.interval.ms
        delegation.token.expiry.time.ms
        delegation.token.max.lifetime.ms
        delegation.token.secret.key
        early.start.listeners
        principal.builder.class
        sasl.client.callback.handler.class
        sasl.enabled.mechanisms
        sasl.jaas.config
        sasl.kerberos.kinit.cmd
        sasl.kerberos.min.time.before.relogin
        sasl.kerberos.principal.to.local.rules
        sasl.kerberos.service.name
        sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
        sasl.login.callback.handler.class
        sasl.login.class
        sasl.login.connect.timeout.ms
        sasl.login.read.timeout.ms
        sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds
        sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter
        sasl.login.retry.backoff.max.ms
        sasl.login.retry.backoff.ms
        sasl.mechanism.controller.protocol
        sasl.mechanism.inter.broker.protocol
        sasl.oauthbearer.allow.unverified.audience
        sasl.oauthbearer.allow.unverified.issuer
        sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include
        sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret
        sasl.oauthbearer.clock.skew.seconds
        sasl.oauthbearer.expected.audience
        sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
        sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.jwt.validator.class
        sasl.oauthbearer.scope
        sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name
        sasl.oauthbearer.token.endpoint.url
        sasl.server.callback.handler.class
        sasl.server.max.receive.size
        security.inter.broker.protocol
        security.providers
        ssl.allow.dn.changes
        ssl.allow.san.changes
        ssl.cipher.suites
        ssl.client.auth
        ssl.enabled.protocols
        ssl.endpoint.identification.algorithm
        ssl.engine.factory.class
        ssl.key.password
        ssl.keymanager.algorithm
        ssl.keystore.certificate.chain
        ssl.keystore.key
        ssl.keystore.location
        ssl.keystore.password
        ssl.keystore.type
        ssl.principal.mapping.rules
        ssl.protocol
        ssl.provider
        ssl.secure.random.implementation
        ssl.trustmanager.algorithm
        ssl.truststore.certificates
        ssl.truststore.location
        ssl.truststore.password
        ssl.truststore.type
    """,
    "Quotas, which are not supported yet.": """
        alter.log.dirs.replication.quota.window.num
        alter.log.dirs.replication.quota.window.size.seconds
        client.quota.callback.class
        controller.quota.window.num
        controller.quota.window.size.seconds
        max.connection.creation.rate
        quota.window.num
        quota.window.size.seconds
        replication.quota.window.num
        replication.quota.window.size.seconds
    """,
    "Controllers, metadata quorum and replication: there is one broker.": """
        auto.leader.rebalance.enable
        broker.heartbeat.interval.ms
        broker.session.timeout.ms
        controlled.shutdown.enable
        controller.performance.always.log.threshold.ms
        controller.performance.sample.period.ms
        controller.quorum.append.linger.ms
        controller.quorum.auto.join.enable
        controller.quorum.bootstrap.servers
        controller.quorum.election.backoff.max.ms
        controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes
        controller.quorum.fetch.snapshot.max.bytes
        controller.quorum.fetch.timeout.ms
        controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms
        controller.quorum.voters
        controller.socket.timeout.ms
        cordoned.log.dirs
        initial.broker.registration.timeout.ms
        inter.broker.listener.name
        internal.metadata.delete.delay.millis
        internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes
        leader.imbalance.check.interval.seconds
        log.dir.failure.timeout.ms
        metadata.log.dir
        metadata.log.max.record.bytes.between.snapshots
        metadata.log.max.snapshot.interval.ms
        metadata.log.segment.bytes
        metadata.log.segment.ms
        metadata.max.idle.interval.ms
        metadata.max.retention.bytes
        metadata.max.retention.ms
        num.replica.alter.log.dirs.threads
        num.replica.fetchers
        offsets.topic.replication.factor
        process.roles
        replica.fetch.backoff.ms
        replica.fetch.max.bytes
        replica.fetch.min.bytes
        replica.fetch.response.max.bytes
        replica.fetch.wait.max.ms
        replica.high.watermark.checkpoint.interval.ms
        replica.lag.time.max.ms
        replica.selector.class
        replica.socket.receive.buffer.bytes
        replica.socket.timeout.ms
        server.max.startup.time.ms
        socket.connection.setup.timeout.max.ms
        socket.connection.setup.timeout.ms
        unclean.leader.election.interval.ms
        unstable.api.versions.enable
        unstable.feature.versions.enable
    """,
    "How Kafka loads and writes its coordinator topics; ours need no such knobs.": """
        group.coordinator.append.linger.ms
        group.coordinator.background.threads
        group.coordinator.cached.buffer.max.bytes
        group.coordinator.threads
        offsets.load.buffer.size
        offsets.topic.compression.codec
    """,
    "Java metrics and plug-ins.": """
        alter.config.policy.class.name
        config.providers
        create.topic.policy.class.name
        kafka.metrics.polling.interval.secs
        kafka.metrics.reporters
        metric.reporters
        metrics.num.samples
        metrics.recording.level
        metrics.sample.window.ms
        telemetry.max.bytes
    """,
    "Threads, queues and caches of a design that differs from ours.": """
        background.threads
        delete.records.purgatory.purge.interval.requests
        fetch.purgatory.purge.interval.requests
        log.cleaner.io.buffer.load.factor
        log.cleaner.io.buffer.size
        log.cleaner.io.max.bytes.per.second
        log.cleaner.threads
        log.initial.task.delay.ms
        max.incremental.fetch.session.cache.slots
        num.io.threads
        num.network.threads
        num.recovery.threads.per.data.dir
        producer.purgatory.purge.interval.requests
        queued.max.requests
        request.timeout.ms
    """,
    "Ended with Kafka 4.0.": """
        advertised.host.name
        advertised.port
        inter.broker.protocol.version
        log.message.downconversion.enable
        log.message.format.version
        log.message.timestamp.difference.max.ms
        offsets.commit.required.acks
        zookeeper.clientCnxnSocket
        zookeeper.connect
        zookeeper.connection.timeout.ms
        zookeeper.max.in.flight.requests
        zookeeper.metadata.migration.enable
        zookeeper.session.timeout.ms
        zookeeper.set.acl
    """,
}

IGNORED: Final[Mapping[str, str]] = {
    name: reason for reason, names in _BY_REASON.items() for name in names.split()
}
"""Why each ignored setting changes nothing, by name."""

IGNORED_PREFIXES: Final = {
    "listener.name.": "Settings of a single listener, which are not supported.",
    "config.providers.": "Java metrics and plug-ins.",
    "rlmm.config.": "Tiered storage, which is not supported.",
    "rsm.config.": "Tiered storage, which is not supported.",
    "zookeeper.ssl.": "Ended with Kafka 4.0.",
}
"""Families of settings whose names are not fixed."""

REFUSED: Final[Mapping[str, str]] = {
    "authorizer.class.name": "there is no authorizer, so everybody would be let in; leave it empty",
}
"""Settings that may only be empty: to ignore a value would be to promise what is not kept."""


def why_ignored(name: str) -> str | None:
    """Why a setting of Kafka changes nothing here; None for a name that is not such a setting."""
    if name in IGNORED:
        return IGNORED[name]
    return next((why for prefix, why in IGNORED_PREFIXES.items() if name.startswith(prefix)), None)
