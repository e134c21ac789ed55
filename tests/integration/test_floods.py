"""Crowds that come and never get in, beside a group at work: who is in notices little of it."""

import re
import ssl
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from kohort.admin.users import hashed
from kohort.cli.stopped_broker import stopped_broker
from kohort.client.net.sasl import Plain, Scram
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.brokers.certificates import Authority
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.groups.raw_members import RawMember
from tests.support.measures.watch import undisturbed, warmed_up
from tests.support.measures.weights import HIGHEST, LOWEST, weigh
from tests.support.network.flood import KINDS, flood
from tests.support.network.wire import RawClient, framed, request_body, response_in
from tests.support.waiting import wait_until

MEMBERS = 100
SESSION_MS = 10_000
RATE = 2_000
FLOOD_S = 10
BUSY_MS = 50
"""Limit of the event loop's CPU time while a request of another client waits (p99.9)."""

pytestmark = pytest.mark.long


class Besieged(KohortServer):
    """A broker with users and TLS."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.authority = Authority(directory / "certificates")
        self.ports = {name: free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        self.metrics_port = free_port()
        listeners = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        listeners += [f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()]
        self.overrides |= {
            "listeners": ",".join(listeners),
            "ssl.keystore.location": str(self.authority.issue("broker", "IP:127.0.0.1")),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "kohort.metrics.port": str(self.metrics_port),
            "group.initial.rebalance.delay.ms": "1000",
            "kohort.authentication.timeout.ms": "3000",
        }
        with stopped_broker(str(self.data)) as place:
            place.set_password("alice", hashed("secret", ["SCRAM-SHA-256"], 4_096))

    def command(self) -> list[str]:
        # A session of its own has a weight of its own.
        return ["setsid", *super().command()]

    def late_share(self, above_s: str) -> tuple[int, int]:
        """How many looks at the loop came later than that, and how many there were."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            page = answer.read().decode()
        name = "kohort_event_loop_lag_seconds"
        within = re.search(rf'{name}_bucket{{le="{above_s}"}} (\d+)', page)
        every = re.search(rf"{name}_count (\d+)", page)
        assert within
        assert every
        return int(every[1]) - int(within[1]), int(every[1])

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def password_threads(self) -> int:
        names = [one.read_text() for one in Path(f"/proc/{self.pid}/task").glob("*/comm")]
        return sum(name.startswith("kohort-password") for name in names)


class Group:
    """Members that send heartbeats over TLS, all of them again and again."""

    def __init__(self, server: Besieged) -> None:
        self.waits_s: list[float] = []
        self.refused: list[int] = []
        self._members = _joined(server.port, "besieged")
        context = ssl.create_default_context(cafile=server.authority.certificate)
        self._clients = [RawClient(server.ports["SSL"]) for _ in self._members]
        for client in self._clients:
            client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        self._frames = [
            framed(
                request_body(
                    m.HeartbeatRequest(
                        group_id=one.group, generation_id=one.generation, member_id=one.member_id
                    ),
                    4,
                )
            )
            for one in self._members
        ]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        while not self._is_over.wait(0.2):
            for client, frame in zip(self._clients, self._frames, strict=True):
                began_s = time.monotonic()
                client.send(frame)
                code = response_in(client.receive(), m.HeartbeatResponse, 4).error_code
                self.waits_s.append(time.monotonic() - began_s)
                if code:
                    self.refused.append(code)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        for client in self._clients:
            client.close()


def _joined(port: int, group: str) -> list[RawMember]:
    members = [RawMember(port, group, session_timeout_ms=SESSION_MS) for _ in range(MEMBERS)]
    for one in members:
        assert one.join().answer().error_code == ErrorCode.MEMBER_ID_REQUIRED
    while True:
        waiting = [one.join() for one in members]
        answers = [one.answer() for one in waiting]
        (leader,) = {one.leader for one in answers}
        if {one.error_code for one in answers} == {0} and len(
            {one.generation for one in members}
        ) == 1:
            break
    for one in sorted(members, key=lambda one: one.member_id != leader):
        shares = {each.member_id: b"" for each in members} if one.member_id == leader else None
        assert not one.sync(shares).error_code
    return members


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with Besieged(tmp_path_factory.mktemp("besieged")) as server:
        warmed_up(server)
        comes_first = weigh(server.pid, HIGHEST)
        print(f"the broker {'comes' if comes_first else 'does not come'} before all others")
        # Opens the files that groups are kept in.
        _joined(server.port, "besieged")
        yield server


PORTS = {
    "connections": "SSL",
    "hellos": "SSL",
    "handshakes": "SSL",
    "passwords": "SASL_PLAINTEXT",
    "scram": "SASL_PLAINTEXT",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_beside_a_hundred_members_costs_none_its_session(
    server: Besieged, kind: str
) -> None:
    port = server.ports[PORTS[kind]]
    # What threads and OpenSSL keep for ever is made now.
    with flood(kind, port, rate=RATE, niceness=LOWEST):
        time.sleep(1)
    before = server.descriptors()
    with (
        Group(server) as group,
        Logins(server) as logins,
        undisturbed(server, longest_s=0.5) as watch,
    ):
        late_before, looks_before = server.late_share("0.05")
        with flood(kind, port, rate=RATE, niceness=LOWEST) as counts:
            time.sleep(FLOOD_S)
            assert server.password_threads() <= 2
        late, looks = server.late_share("0.05")
    assert not group.refused
    assert all(logins.waits_s.values())
    assert not logins.refused
    print(f"{kind}: {counts[1]:.0f}/s, heartbeats {_told(group.waits_s)}")
    for mechanism, waits_s in logins.waits_s.items():
        print(f"logins by {mechanism}: {_told(waits_s)}")
    print(f"loop later than 50 ms: {late - late_before} of {looks - looks_before}")
    busy_ms = _p999_ms(f"{kind}: busy while a question waits", watch.busy_s)
    assert busy_ms < BUSY_MS
    wait_until(lambda: server.descriptors() <= before, "all descriptors come back")


class Logins:
    """Somebody who knows the password, and comes again and again."""

    def __init__(self, server: Besieged) -> None:
        self._port = server.ports["SASL_PLAINTEXT"]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._come)
        self.waits_s: dict[str, list[float]] = {"PLAIN": [], "SCRAM-SHA-256": []}
        self.refused = Counter[str]()

    def _come(self) -> None:
        while not self._is_over.wait(0.1):
            for mechanism, waits_s in self.waits_s.items():
                began_s = time.monotonic()
                try:
                    with RawClient(self._port) as client:
                        _log_in(client, mechanism)
                except (OSError, PermissionError):
                    self.refused[mechanism] += 1
                else:
                    waits_s.append(time.monotonic() - began_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join(60)


def _log_in(client: RawClient, mechanism: str) -> None:
    """Raises PermissionError if it is told no."""
    client.call(m.SaslHandshakeRequest(mechanism=mechanism), 1, m.SaslHandshakeResponse)
    rules: Plain | Scram = Plain("alice", "secret")
    if mechanism != "PLAIN":
        rules = Scram("sha256", "alice", "secret", "n0nce")
    token: bytes | None = rules.first()
    while token is not None:
        request = m.SaslAuthenticateRequest(auth_bytes=token)
        answer = client.call(request, 2, m.SaslAuthenticateResponse)
        if answer.error_code:
            raise PermissionError(answer.error_message)
        token = rules.answer(answer.auth_bytes)


def _p999_ms(what: str, times_s: list[float]) -> float:
    """What 999 of 1,000 took at most."""
    ms = sorted(1_000 * one for one in times_s)
    assert len(ms) >= 300
    found = ms[-1 - len(ms) // 1_000]
    print(f"{what}: {len(ms)}, p99.9 {found:.1f} ms, most {ms[-1]:.1f} ms")
    return found


def _told(waits_s: list[float]) -> str:
    ms = sorted(1_000 * one for one in waits_s)
    half, most = ms[len(ms) // 2], ms[len(ms) * 99 // 100]
    return f"{len(ms)}: median {half:.1f} ms, p99 {most:.1f} ms, most {ms[-1]:.1f} ms"
