"""Broker settings that Kafka 4.4 has and that change nothing here, each with the reason.

They are accepted, so that a server.properties made for Kafka can be used as it is, and named once
in the log at start when they are set.

Behind a name stand its type and default, ``null`` for none and ``""`` for an empty one; then, where
Kafka changes it at run time, the values it takes, ``dynamic``, and a rule of `Rule`. A name that
stands alone is one that Kafka does not describe. `kohort.broker.config.unused` reads the lines.
"""

from collections.abc import Mapping
from typing import Final

_BY_REASON: Final = {
    "Tiered storage, which is not supported.": """
        follower.fetch.last.tiered.offset.enable BOOLEAN false dynamic
        remote.fetch.max.wait.ms INT 500 >=1 dynamic
        remote.list.offsets.request.timeout.ms LONG 30000 >=1 dynamic
        remote.log.index.file.cache.total.size.bytes LONG 1073741824 >=1 dynamic
        remote.log.index.file.cache.ttl.ms
        remote.log.manager.copier.thread.pool.size INT 10 >=1 dynamic threads
        remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 >=1 dynamic
        remote.log.manager.copy.quota.window.num INT 11
        remote.log.manager.copy.quota.window.size.seconds INT 1
        remote.log.manager.expiration.thread.pool.size INT 10 >=1 dynamic threads
        remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 >=1 dynamic
        remote.log.manager.fetch.quota.window.num INT 11
        remote.log.manager.fetch.quota.window.size.seconds INT 1
        remote.log.manager.follower.thread.pool.size INT 2 >=1 dynamic threads
        remote.log.manager.task.interval.ms LONG 30000
        remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms
        remote.log.manager.task.retry.jitter
        remote.log.manager.thread.pool.size INT 2
        remote.log.metadata.custom.metadata.max.bytes INT 128
        remote.log.metadata.manager.class.name STRING \
            org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
        remote.log.metadata.manager.class.path STRING null
        remote.log.metadata.manager.impl.prefix STRING rlmm.config.
        remote.log.metadata.manager.listener.name STRING null
        remote.log.reader.max.pending.tasks INT 100
        remote.log.reader.threads INT 10 >=1 dynamic threads
        remote.log.storage.manager.class.name STRING null
        remote.log.storage.manager.class.path STRING null
        remote.log.storage.manager.impl.prefix STRING rsm.config.
        remote.log.storage.system.enable BOOLEAN false
    """,
    "Share groups (KIP-932), which are not supported.": """
        errors.deadletterqueue.auto.create.topics.enable BOOLEAN false dynamic
        errors.deadletterqueue.topic.name.prefix STRING dlq. dynamic
        group.share.assignment.interval.ms INT 1000 >=0 dynamic
        group.share.assignor.offload.enable
        group.share.assignors LIST simple
        group.share.delivery.count.limit INT 5
        group.share.dlq.manager.class.name
        group.share.heartbeat.interval.ms INT 5000
        group.share.initialize.retry.interval.ms
        group.share.max.assignment.interval.ms INT 15000
        group.share.max.delivery.count.limit INT 10
        group.share.max.heartbeat.interval.ms INT 15000
        group.share.max.partition.max.record.locks INT 4000
        group.share.max.record.lock.duration.ms INT 60000
        group.share.max.session.timeout.ms INT 60000
        group.share.max.share.sessions INT 2000
        group.share.max.size INT 200
        group.share.min.assignment.interval.ms INT 0
        group.share.min.delivery.count.limit INT 2
        group.share.min.heartbeat.interval.ms INT 5000
        group.share.min.partition.max.record.locks INT 100
        group.share.min.record.lock.duration.ms INT 15000
        group.share.min.session.timeout.ms INT 45000
        group.share.partition.max.record.locks INT 2000
        group.share.persister.class.name
        group.share.record.lock.duration.ms INT 30000
        group.share.session.timeout.ms INT 45000
        share.coordinator.append.linger.ms INT -1
        share.coordinator.cached.buffer.max.bytes INT 1048588 >=524288 dynamic
        share.coordinator.cold.partition.snapshot.interval.ms
        share.coordinator.load.buffer.size INT 5242880
        share.coordinator.snapshot.update.records.per.snapshot INT 500
        share.coordinator.state.topic.compression.codec INT 0
        share.coordinator.state.topic.min.isr SHORT 2
        share.coordinator.state.topic.num.partitions INT 50
        share.coordinator.state.topic.prune.interval.ms
        share.coordinator.state.topic.replication.factor SHORT 3
        share.coordinator.state.topic.segment.bytes INT 104857600
        share.coordinator.threads INT 1
        share.coordinator.write.timeout.ms INT 5000
        share.fetch.purgatory.purge.interval.requests INT 1000
    """,
    "Streams groups (KIP-1071), which are not supported.": """
        group.streams.acceptable.recovery.lag
        group.streams.assignment.interval.ms INT 1000 >=0 dynamic
        group.streams.assignor.offload.enable
        group.streams.assignors LIST sticky
        group.streams.heartbeat.interval.ms INT 5000
        group.streams.initial.rebalance.delay.ms INT 3000
        group.streams.max.assignment.interval.ms INT 15000
        group.streams.max.heartbeat.interval.ms INT 15000
        group.streams.max.session.timeout.ms INT 60000
        group.streams.max.size INT 2147483647
        group.streams.max.standby.replicas INT 2
        group.streams.max.warmup.replicas
        group.streams.min.assignment.interval.ms INT 0
        group.streams.min.heartbeat.interval.ms INT 5000
        group.streams.min.session.timeout.ms INT 45000
        group.streams.min.task.offset.interval.ms
        group.streams.num.standby.replicas INT 0
        group.streams.num.warmup.replicas
        group.streams.rack.aware.assignment.tags LIST ""
        group.streams.session.timeout.ms INT 45000
        group.streams.task.offset.interval.ms
        group.streams.topology.description.plugin.class CLASS null
    """,
    "The newer consumer group protocol (KIP-848), which is not supported yet.": """
        group.consumer.assignment.interval.ms INT 1000 >=0 dynamic
        group.consumer.assignor.offload.enable
        group.consumer.assignors LIST uniform,range
        group.consumer.heartbeat.interval.ms INT 5000
        group.consumer.max.assignment.interval.ms INT 15000
        group.consumer.max.heartbeat.interval.ms INT 15000
        group.consumer.max.session.timeout.ms INT 60000
        group.consumer.max.size INT 2147483647
        group.consumer.migration.policy STRING bidirectional
        group.consumer.min.assignment.interval.ms INT 0
        group.consumer.min.heartbeat.interval.ms INT 5000
        group.consumer.min.session.timeout.ms INT 45000
        group.consumer.regex.refresh.interval.ms
        group.consumer.session.timeout.ms INT 45000
        group.coordinator.rebalance.protocols LIST classic,consumer,streams
    """,
    "Verification between brokers and replication of transactions: there is one broker.": """
        add.partitions.to.txn.retry.backoff.max.ms INT 100
        add.partitions.to.txn.retry.backoff.ms INT 20
        transaction.state.log.load.buffer.size INT 5242880
        transaction.state.log.min.isr INT 2
        transaction.state.log.replication.factor SHORT 3
    """,
    "Kerberos, delegation tokens, Java classes, and security of connections between brokers.": """
        delegation.token.expiry.check.interval.ms LONG 3600000
        delegation.token.expiry.time.ms LONG 86400000
        delegation.token.max.lifetime.ms LONG 604800000
        delegation.token.secret.key PASSWORD null
        early.start.listeners LIST null
        principal.builder.class CLASS \
            org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder \
            dynamic per-broker
        sasl.client.callback.handler.class CLASS null
        sasl.kerberos.kinit.cmd STRING /usr/bin/kinit dynamic per-broker
        sasl.kerberos.min.time.before.relogin LONG 60000 dynamic per-broker
        sasl.kerberos.principal.to.local.rules LIST DEFAULT dynamic per-broker
        sasl.kerberos.service.name STRING null dynamic per-broker
        sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 dynamic per-broker
        sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 dynamic per-broker
        sasl.login.callback.handler.class CLASS null
        sasl.login.class CLASS null
        sasl.login.connect.timeout.ms INT null
        sasl.login.read.timeout.ms INT null
        sasl.login.refresh.buffer.seconds SHORT 300 dynamic per-broker
        sasl.login.refresh.min.period.seconds SHORT 60 dynamic per-broker
        sasl.login.refresh.window.factor DOUBLE 0.8 dynamic per-broker
        sasl.login.refresh.window.jitter DOUBLE 0.05 dynamic per-broker
        sasl.login.retry.backoff.max.ms LONG 10000
        sasl.login.retry.backoff.ms LONG 100
        sasl.mechanism.controller.protocol STRING GSSAPI
        sasl.mechanism.inter.broker.protocol STRING GSSAPI dynamic per-broker
        sasl.oauthbearer.assertion.algorithm STRING RS256
        sasl.oauthbearer.assertion.claim.aud STRING null
        sasl.oauthbearer.assertion.claim.exp.seconds INT 300
        sasl.oauthbearer.assertion.claim.iss STRING null
        sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false
        sasl.oauthbearer.assertion.claim.nbf.seconds INT 60
        sasl.oauthbearer.assertion.claim.sub STRING null
        sasl.oauthbearer.assertion.file STRING null
        sasl.oauthbearer.assertion.private.key.file STRING null
        sasl.oauthbearer.assertion.private.key.passphrase PASSWORD null
        sasl.oauthbearer.assertion.template.file STRING null
        sasl.oauthbearer.client.credentials.client.id STRING null
        sasl.oauthbearer.client.credentials.client.secret PASSWORD null
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100
        sasl.oauthbearer.jwt.retriever.class CLASS \
            org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
        sasl.oauthbearer.jwt.validator.class CLASS \
            org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
        sasl.oauthbearer.scope STRING null
        sasl.oauthbearer.token.endpoint.url STRING null
        sasl.server.callback.handler.class CLASS null
        security.inter.broker.protocol STRING PLAINTEXT
        security.providers STRING null
        ssl.endpoint.identification.algorithm STRING https dynamic per-broker
        ssl.engine.factory.class CLASS null dynamic per-broker
        ssl.keymanager.algorithm STRING SunX509 dynamic per-broker
        ssl.protocol STRING TLSv1.3 dynamic per-broker
        ssl.provider STRING null dynamic per-broker
        ssl.secure.random.implementation STRING null dynamic per-broker
        ssl.trustmanager.algorithm STRING PKIX dynamic per-broker
    """,
    "Replication quotas: there is no replication.": """
        alter.log.dirs.replication.quota.window.num INT 11
        alter.log.dirs.replication.quota.window.size.seconds INT 1
        client.quota.callback.class CLASS null
        replication.quota.window.num INT 11
        replication.quota.window.size.seconds INT 1
    """,
    "Controllers, metadata quorum and replication: there is one broker.": """
        auto.leader.rebalance.enable BOOLEAN true
        broker.heartbeat.interval.ms INT 2000
        broker.session.timeout.ms INT 9000
        controlled.shutdown.enable BOOLEAN true
        controller.performance.always.log.threshold.ms
        controller.performance.sample.period.ms
        controller.quorum.append.linger.ms INT 25
        controller.quorum.auto.join.enable BOOLEAN false
        controller.quorum.bootstrap.servers LIST ""
        controller.quorum.election.backoff.max.ms INT 1000
        controller.quorum.election.timeout.ms INT 1000
        controller.quorum.fetch.max.bytes INT 1048576
        controller.quorum.fetch.snapshot.max.bytes INT 1048576
        controller.quorum.fetch.timeout.ms INT 2000
        controller.quorum.request.timeout.ms INT 2000
        controller.quorum.retry.backoff.ms INT 20
        controller.quorum.voters LIST ""
        controller.socket.timeout.ms INT 30000
        cordoned.log.dirs LIST ""
        initial.broker.registration.timeout.ms INT 60000
        inter.broker.listener.name STRING null
        internal.metadata.delete.delay.millis
        internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes
        leader.imbalance.check.interval.seconds LONG 300
        log.dir.failure.timeout.ms LONG 30000
        metadata.log.dir STRING null
        metadata.log.max.record.bytes.between.snapshots LONG 20971520
        metadata.log.max.snapshot.interval.ms LONG 3600000
        metadata.log.segment.bytes INT 1073741824
        metadata.log.segment.ms LONG 604800000
        metadata.max.idle.interval.ms INT 500
        metadata.max.retention.bytes LONG 104857600
        metadata.max.retention.ms LONG 604800000
        num.replica.alter.log.dirs.threads INT null
        num.replica.fetchers INT 1 >=1 dynamic threads
        offsets.topic.replication.factor SHORT 3
        process.roles LIST null
        replica.fetch.backoff.ms INT 1000
        replica.fetch.max.bytes INT 1048576
        replica.fetch.min.bytes INT 1
        replica.fetch.response.max.bytes INT 10485760
        replica.fetch.wait.max.ms INT 500
        replica.high.watermark.checkpoint.interval.ms LONG 5000
        replica.lag.time.max.ms LONG 30000
        replica.selector.class STRING null
        replica.socket.receive.buffer.bytes INT 65536
        replica.socket.timeout.ms INT 30000
        server.max.startup.time.ms
        socket.connection.setup.timeout.max.ms LONG 30000
        socket.connection.setup.timeout.ms LONG 10000
        unclean.leader.election.interval.ms
        unstable.api.versions.enable
        unstable.feature.versions.enable
    """,
    "Kafka's loading and writing of its coordinator topics; ours need no such settings.": """
        group.coordinator.append.linger.ms INT -1
        group.coordinator.background.threads INT 2
        group.coordinator.cached.buffer.max.bytes INT 1048588 >=524288 dynamic
        group.coordinator.threads INT 4
        offsets.load.buffer.size INT 5242880
        offsets.topic.compression.codec INT 0
    """,
    "Java metrics and plug-ins.": """
        alter.config.policy.class.name CLASS null
        config.providers LIST "" dynamic
        create.topic.policy.class.name CLASS null
        kafka.metrics.polling.interval.secs INT 10
        kafka.metrics.reporters LIST ""
        metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter dynamic
        metrics.num.samples INT 2
        metrics.recording.level STRING INFO
        metrics.sample.window.ms LONG 30000
        telemetry.max.bytes INT 1048576
    """,
    "Threads, queues and caches of a design that differs from ours.": """
        background.threads INT 10 >=1 dynamic threads
        delete.records.purgatory.purge.interval.requests INT 1
        fetch.purgatory.purge.interval.requests INT 1000
        log.cleaner.io.buffer.load.factor DOUBLE 0.9 dynamic
        log.cleaner.io.buffer.size INT 524288 >=0 dynamic
        log.cleaner.io.max.bytes.per.second DOUBLE 1.7976931348623157E308 dynamic
        log.cleaner.threads INT 1 >=0 dynamic threads
        log.initial.task.delay.ms
        max.incremental.fetch.session.cache.slots INT 1000
        num.io.threads INT 8 >=1 dynamic threads
        num.network.threads INT 3 >=1 dynamic threads
        num.recovery.threads.per.data.dir INT 2 >=1 dynamic threads
        producer.purgatory.purge.interval.requests INT 1000
        queued.max.requests INT 500
        request.timeout.ms INT 30000
    """,
    "Removed in Kafka 4.0.": """
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

LINES: Final = {
    reason: tuple(line for line in map(str.strip, lines.splitlines()) if line)
    for reason, lines in _BY_REASON.items()
}
"""What is said of each ignored setting, by the reason."""

IGNORED: Final[Mapping[str, str]] = {
    line.partition(" ")[0]: reason for reason, lines in LINES.items() for line in lines
}
"""Why each ignored setting changes nothing, by name."""

IGNORED_PREFIXES: Final = {
    "config.providers.": "Java metrics and plug-ins.",
    "rlmm.config.": "Tiered storage, which is not supported.",
    "rsm.config.": "Tiered storage, which is not supported.",
    "zookeeper.ssl.": "Removed in Kafka 4.0.",
}
"""Families of settings whose names are not fixed."""


def why_ignored(name: str) -> str | None:
    """Why a setting of Kafka changes nothing here; None for a name that is not such a setting."""
    if name in IGNORED:
        return IGNORED[name]
    return next((why for prefix, why in IGNORED_PREFIXES.items() if name.startswith(prefix)), None)
