"""Clients with TLS of an edge without sockets."""

import asyncio
import ssl
from pathlib import Path

from kohort.broker.core.security.session import Principal
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.service import Listener, NewConnection, TlsPeer
from kohort.broker.network.tls.connection import CIPHERTEXT_BUFFER_BYTES, TlsConnection
from kohort.broker.network.tls.pump import TlsError
from tests.support.brokers.certificates import Authority
from tests.support.network.memory_transport import MemoryTransport
from tests.support.network.wire import framed
from tests.unit.broker.network.edge import Edge, bodies


def server_context(key_store: Path) -> ssl.SSLContext:
    """The broker's side, with the certificate in `key_store`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_store)
    return context


class Client:
    """The other end, which is OpenSSL's as well."""

    def __init__(self, authority: Authority, *, version: ssl.TLSVersion | None = None) -> None:
        self.context = ssl.create_default_context(cafile=authority.certificate)
        if version is not None:
            self.context.minimum_version = self.context.maximum_version = version
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = self.context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self.is_established = False
        self.plain = b""

    def take(self, data: bytes) -> bytes:
        """What it answers."""
        self._in.write(data)
        try:
            if not self.is_established:
                self.tls.do_handshake()
                self.is_established = True
            while data := self.tls.read(65_536):
                self.plain += data
        except ssl.SSLWantReadError:
            pass
        return self._out.read()

    def alert(self) -> bytes:
        """What it has to say after a failure."""
        return self._out.read()

    def send(self, data: bytes) -> bytes:
        for begin in range(0, len(data), 16_384):
            self.tls.write(data[begin : begin + 16_384])
        return self._out.read()


class Side:
    """TLS of a listener whose clients are let in with the handshake."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.refuses = False
        self.fault: Exception | None = None

    def established(self, connection: NewConnection, peer: TlsPeer) -> None:
        if self.refuses:
            raise TlsError("no principal")
        if self.fault is not None:
            raise self.fault
        name = peer.version.partition(" ")[0]
        session = connection.info.session
        connection.on_authenticated(session._replace(principal=Principal("User", name)))


class Peer:
    """A client with TLS of an edge without sockets."""

    def __init__(
        self, edge: Edge, authority: Authority, context: ssl.SSLContext, ip: str = "127.0.0.1"
    ) -> None:
        if not edge.server.ciphertext_buffer:
            edge.server.ciphertext_buffer = memoryview(bytearray(CIPHERTEXT_BUFFER_BYTES))
        self.authority = authority
        self.side = Side(context)
        listener = Listener("SSL", tls=self.side)
        self.connection = Connection(edge.server, listener)
        self.tls = TlsConnection(edge.server, self.connection, context, self.side.established)
        self.transport = MemoryTransport(self.tls, ip=ip)
        self.client = Client(authority)

    async def do_handshake(self) -> None:
        await self.exchange(self.client.take(b""))

    async def exchange(self, data: bytes) -> None:
        while data:
            self.transport.send(data)
            for _ in range(6):
                await asyncio.sleep(0)
            data = self.answer()

    def answer(self) -> bytes:
        taken = bytes(self.transport.taken)
        self.transport.taken.clear()
        return self.client.take(taken)

    async def ask(self, *requests: bytes) -> list[bytes]:
        await self.exchange(self.client.send(b"".join(framed(one) for one in requests)))
        found, self.client.plain = bodies(self.client.plain), b""
        return found
