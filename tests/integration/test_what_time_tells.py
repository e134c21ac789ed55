"""How long a refusal takes says nothing of who there is: names are tried in turn, with wrong
passwords, and the times of their answers compared.

Failures are kept back until a moment that does not depend on the work. Here they are not, so that
the work itself is measured: as it would show where that delay is set to nothing.
"""

import math
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort.admin.users import hashed
from kohort.cli.stopped_broker import stopped_broker
from kohort.client.net.sasl import Plain, Scram
from kohort.protocol.scram import HASHES
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.measures.watch import warmed_up
from tests.support.network.wire import RawClient, response_in

T_MAX = 4.5
"""Welch's t above which times differ by more than chance (the bar of TVLA and dudect)."""
TRIMMED = 0.9
"""The slowest of all together say more of the machine."""
ROUNDS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}

NAMES = {
    # All of five letters, as the length of a name is the asker's own.
    "known": "alice",
    "unknown": "zelda",
    "with another mechanism alone": "berta",
    "of the settings": "given",
}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    directory: Path = tmp_path_factory.mktemp("timed")
    server, port = KohortServer(directory), free_port()
    server.overrides |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{server.port},SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": ",".join(ROUNDS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{MODULE} required user_given="in file";'
        ),
        "connection.failed.authentication.delay.ms": "0",
    }
    with stopped_broker(str(server.data)) as place:
        for number in range(50):
            place.set_password(f"u{number:04d}", hashed("x", list(HASHES), 4_096))
        place.set_password("alice", hashed("secret", list(HASHES), 4_096))
        place.set_password("berta", hashed("secret", ["SCRAM-SHA-512"], 4_096))
    with server:
        warmed_up(server)
        yield port


class Told(NamedTuple):
    """What a name was answered."""

    took_s: Sequence[float]
    """Each round."""
    form: Sequence[object]
    """What it was, without what is drawn by lot or made of the name."""


def refused(port: int, mechanism: str, user: str, source: str) -> Told:
    """An attempt with a wrong password."""
    rules: Plain | Scram = Plain(user, "wrong")
    if mechanism != "PLAIN":
        rules = Scram(HASHES[mechanism], user, "wrong", "n0nce")
    took_s, form = [], []
    with RawClient(port, source=source) as client:
        client.call(m.SaslHandshakeRequest(mechanism=mechanism), 1, m.SaslHandshakeResponse)
        token: bytes | None = rules.first()
        while token is not None:
            request = m.SaslAuthenticateRequest(auth_bytes=token)
            began_s = time.perf_counter()
            data = client.ask(request, 2)
            took_s.append(time.perf_counter() - began_s)
            answer = response_of(data)
            iterations = answer.auth_bytes.rpartition(b",")[2]
            form.append((len(data), answer.error_code, answer.error_message, iterations))
            token = None if answer.error_code else rules.answer(answer.auth_bytes)
        assert client.is_closed()
    return Told(took_s, form)


@pytest.mark.parametrize("mechanism", ROUNDS)
def test_names_are_told_from_each_other_by_no_answer_and_by_no_time(
    port: int, mechanism: str, long_form: bool
) -> None:
    chance = random.Random(1)
    turns = [name for name in NAMES for _ in range(10_000 if long_form else 3)]
    chance.shuffle(turns)
    told: dict[str, list[Told]] = {name: [] for name in NAMES}
    for number, name in enumerate(turns):
        # Who fails again and again is kept waiting, so each comes from elsewhere.
        source = f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        told[name].append(refused(port, mechanism, NAMES[name], source))
    forms = {tuple(one.form) for each in told.values() for one in each}
    assert len(forms) == 1, forms
    assert len(forms.pop()) == ROUNDS[mechanism]
    if long_form:
        for step in range(ROUNDS[mechanism]):
            compare(f"{mechanism}, round {step + 1}", {
                name: [one.took_s[step] for one in each] for name, each in told.items()
            })  # fmt: skip


def compare(what: str, times_s: Mapping[str, Sequence[float]]) -> None:
    """Against the unknown name: no more than chance between them. Load shifts medians as well."""
    every = sorted(one for each in times_s.values() for one in each)
    most = every[int(len(every) * TRIMMED)]
    kept = {name: [one for one in each if one <= most] for name, each in times_s.items()}
    unknown = kept.pop("unknown")
    failed = []
    for name, each in kept.items():
        t = welch(each, unknown)
        ratio = statistics.median(each) / statistics.median(unknown)
        print(
            f"{what}: {name}: median {1e6 * statistics.median(each):.1f} us, {ratio:.4f} of an"
            f" unknown one's, t = {t:.2f} of {len(each)} and {len(unknown)}"
        )
        if abs(t) >= T_MAX:
            failed.append(name)
    assert not failed


def welch(left: Sequence[float], right: Sequence[float]) -> float:
    spread = math.sqrt(sum(statistics.variance(one) / len(one) for one in (left, right)))
    return (statistics.fmean(left) - statistics.fmean(right)) / spread


def response_of(data: bytes) -> m.SaslAuthenticateResponse:
    return response_in(data, m.SaslAuthenticateResponse, 2)
