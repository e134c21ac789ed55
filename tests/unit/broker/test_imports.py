"""The start of a broker must not pay for what only later requests need."""

import subprocess
import sys

NOT_AT_THE_START = (
    # 50 ms and 5 MiB: with the first scrape.
    "prometheus_client",
    # 2.5 MiB, with the first codec that is generated.
    "construct",
    # Each with the first request for its API.
    "kohort.broker.handlers.produce",
    # These take 30 ms and 3 MiB, and are imported for the first group or transaction.
    "kohort.broker.coordinator.host",
    "kohort.broker.core.transaction.requests",
    "kohort.broker.history.history",
    "kohort.broker.transactions.host",
    "kohort.groups.events",
    "kohort.groups.requests",
    # 13 ms and 1.2 MiB: with the first membership.
    "kohort.groups.classic.membership",
    "kohort.groups.consumer.membership",
    # 10 ms and 1.5 MiB: with the first partition, which a clean start does not open.
    "kohort.broker.core.partition.producers",
    "kohort.broker.storage.log.log",
    "kohort.broker.topics.partition",
    "kohort.protocol.records.batch",
    # 1 ms: with the first change to a topic or a config.
    "kohort.broker.topics.changes",
    # With the first share group.
    "kohort.broker.share.delivery",
    "kohort.groups.share.membership",
    "kohort.groups.share.window",
    # 2 ms each: for the first large frame, and the first member or topic id.
    "ctypes",
    "uuid",
    # 1 MiB: for a host name that is not ASCII.
    "encodings.idna",
    # 0.7 MiB: for the first password, long client id or group.
    "hashlib",
    # argparse looks for the terminal's width with it.
    "shutil",
    # 2 ms: with the first authorizer or request for a resource.
    "kohort.broker.core.security.acls",
    "kohort.broker.dispatch.access",
    # 1 ms: with the first user.
    "kohort.broker.core.security.sasl",
    # With the first listener or port that uses them.
    "kohort.broker.network.tls.connection",
    "kohort.broker.network.tls.handshakes",
    "kohort.broker.security.authenticator",
    "kohort.broker.security.http_guard",
    "kohort.broker.security.passwords",
    "kohort.broker.security.tls_listener",
    # With the first log that is to be compacted.
    "kohort.broker.storage.compaction.cleaner",
    # With the first HTTP connection.
    "h11",
    # With the first page of the console, scrape, key store, file of settings or users, or
    # `sasl.jaas.config`.
    "kohort.broker.console.source",
    "kohort.broker.core.security.certificate",
    "kohort.broker.metrics.source",
    "kohort.broker.security.users_file",
    "kohort.formats.jaas",
    "kohort.formats.properties",
    # What makes records of rebalances: 30 ms, with the first of them.
    "kohort.groups.history.build",
    "kohort.groups.history.model",
    # With the first page that sums them up.
    "kohort.insight",
    # The codecs, each with the first batch that is compressed with it.
    "cramjam",
    "lz4.frame",
    "zstandard",
    # 20 ms, for packages that ask for their own version.
    "email",
    "importlib.metadata",
    # A generator of random numbers, where the operating system's are wanted.
    "random",
    # What a broker has no use for, and some library's side entrance might bring.
    "http.client",
    "multiprocessing",
    "unittest",
    "urllib.request",
    "xml",
)


def test_a_start_imports_nothing_that_it_does_not_need() -> None:
    script = (
        "import sys, kohort.cli\n"
        # A start that ends when all is imported.
        "kohort.cli.main(['serve', '--override', 'num.partitions=0'])\n"
        "from kohort.broker.network.server.listening import listening_sockets\n"
        "listening_sockets('localhost', 0)\n"
        f"print([name for name in {('kohort.broker.app', *NOT_AT_THE_START)}"
        " if name in sys.modules])\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['kohort.broker.app']\n"


def test_help_imports_no_broker() -> None:
    script = (
        "import sys, kohort.broker.__main__\n"
        "print({'asyncio', 'kohort.broker.app'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_start_does_not_collect_garbage_while_it_imports() -> None:
    script = (
        "import gc, sys, kohort.broker.__main__\n"
        "looks = []\n"
        "gc.callbacks.append(lambda *what: looks.append(what))\n"
        # A start that ends when all is imported.
        "kohort.broker.__main__.main(['--override', 'num.partitions=0'])\n"
        "print('kohort.broker.app' in sys.modules, gc.isenabled(), len(looks))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported, collects, looks = done.stdout.split()
    assert (imported, collects) == ("True", "True")
    # Each tells its begin and its end; with the collector on there are 130.
    assert int(looks) < 20
