"""`kohort users disable` and `enable`: who is let in, over real sockets, and who stays in."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from kohort.admin.users import hashed
from kohort.broker.app import StartError
from kohort.cli import main
from kohort.cli.stopped_broker import stopped_broker
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.network.sasl import log_in, log_in_by_scram
from tests.support.network.wire import RawClient

PASSWORD = "a secret: 100%"
GIVEN = "in file"
ODD = "a, b% and c"
USERS = ("alice", "bob", ODD)
SCRAM = "SCRAM-SHA-256"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"

_numbers = count(2)


@dataclass(frozen=True, slots=True)
class Place:
    """A broker, and how it is asked."""

    data: Path
    settings: dict[str, str]
    admin: int
    sasl: int
    http: int
    ip: str = "127.0.0.1"
    """Where clients come from: an address that goes on failing has to wait for its answers."""

    def running(self) -> BrokerThread:
        return BrokerThread(self.data, overrides=self.settings)

    def users(self, *arguments: str) -> int:
        """`kohort users`, of the running broker."""
        return main(["users", *arguments, "--bootstrap-server", f"127.0.0.1:{self.admin}"])

    def users_of_stopped(self, *arguments: str) -> int:
        return main(["users", *arguments, "--data", str(self.data)])

    def http_status(self, user: str) -> int:
        credentials = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}/metrics",
            headers={"Authorization": f"Basic {credentials}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def client(self) -> RawClient:
        return RawClient(self.sasl, source=self.ip)

    def plain(self, user: str, password: str = PASSWORD) -> m.SaslAuthenticateResponse:
        with self.client() as client:
            return log_in(client, user, password)

    def scram(self, user: str, password: str = PASSWORD) -> m.SaslAuthenticateResponse:
        """What the last token is answered."""
        with self.client() as client:
            return log_in_by_scram(client, user, password)

    def lets_in(self, user: str, password: str = PASSWORD) -> set[bool]:
        """By PLAIN twice, as the second time it may be remembered, and by SCRAM."""
        said = [self.plain(user, password), self.plain(user, password), self.scram(user, password)]
        return {one.error_code == 0 for one in said}


def is_served(client: RawClient) -> bool:
    return bool(client.call(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers)


def new_place(directory: Path) -> Place:
    admin, sasl, http = free_port(), free_port(), free_port()
    settings = {
        "listeners": f"ADMIN://127.0.0.1:{admin},SASL://127.0.0.1:{sasl}",
        "listener.security.protocol.map": "ADMIN:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
        "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} required user_given="{GIVEN}";',
        "connections.max.reauth.ms": "3600000",
        "connection.failed.authentication.delay.ms": "1",
        "kohort.metrics.port": str(http),
        "kohort.http.authentication": "basic",
    }
    with stopped_broker(str(directory / "data")) as made:
        for user in USERS:
            made.set_password(user, hashed(PASSWORD, [SCRAM], 4_096))
    return Place(directory / "data", settings, admin, sasl, http)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = new_place(tmp_path_factory.mktemp("broker"))
    with place.running():
        yield place


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    """A running broker with no user disabled, and asked from an address that has not failed yet."""
    yield replace(shared, ip=f"127.0.0.{next(_numbers)}")
    shared.users("enable", *USERS)


@pytest.fixture
def stopped(tmp_path: Path) -> Place:
    """A broker that does not run."""
    return new_place(tmp_path)


def test_a_disabled_user_is_let_in_by_nothing_and_again_once_it_is_enabled(place: Place) -> None:
    assert place.lets_in("alice") == {True}
    assert place.http_status("alice") == 200
    assert place.users("disable", "alice") == 0
    assert place.lets_in("alice") == {False}
    assert place.http_status("alice") == 401
    assert place.lets_in("bob") == {True}
    assert place.users("enable", "alice") == 0
    assert place.lets_in("alice") == {True}
    assert place.http_status("alice") == 200


def test_who_is_disabled_hears_what_a_wrong_password_is_told(place: Place) -> None:
    assert place.users("disable", "alice") == 0
    assert place.plain("alice") == place.plain("alice", "wrong") == place.plain("bob", "wrong")
    assert place.scram("alice") == place.scram("alice", "wrong") == place.scram("bob", "wrong")


def test_a_user_of_the_settings_is_disabled_by_its_name(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.plain("given", GIVEN).error_code == 0
    assert place.users("disable", "given") == 1
    assert "kohort.users.disabled" in capsys.readouterr().err
    # It has a password of its own, beside the one that it is given.
    read_from = place.data.parent / "password"
    read_from.write_text(PASSWORD)
    with read_from.open("rb") as file:
        assert place.users("add", "given", "--password-fd", str(file.fileno())) == 0
    assert place.users("disable", "given") == 0
    assert place.plain("given", GIVEN).error_code != 0
    assert place.users("remove", "given") == 0
    assert place.plain("given", GIVEN).error_code != 0
    capsys.readouterr()
    assert place.users("list") == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if "given" in one)
    assert line.split() == ["given", "-", "-", "disabled"]
    assert place.users("enable", "given") == 0
    assert place.plain("given", GIVEN).error_code == 0


def test_open_connections_stay_until_they_authenticate_again(place: Place) -> None:
    with place.client() as first, place.client() as second:
        for client in (first, second):
            assert log_in(client, "alice", PASSWORD).error_code == 0
        assert place.users("disable", "alice") == 0
        assert is_served(first)
        assert is_served(second)
        assert log_in(second, "alice", PASSWORD).error_code != 0
        assert second.is_closed()
        assert is_served(first)


def test_connections_of_a_user_that_is_disconnected_end_and_no_others(place: Place) -> None:
    with place.client() as alice, place.client() as bob:
        assert log_in(alice, "alice", PASSWORD).error_code == 0
        assert log_in(bob, "bob", PASSWORD).error_code == 0
        assert place.users("disable", "alice") == 0
        assert is_served(alice)
        assert place.users("disable", "alice", "--disconnect") == 0
        assert alice.is_closed()
        assert is_served(bob)
    # The next time it is disabled, it is not disconnected unless that is said again.
    assert place.users("enable", "alice") == 0
    with place.client() as alice:
        assert log_in(alice, "alice", PASSWORD).error_code == 0
        assert place.users("disable", "alice") == 0
        assert is_served(alice)


def test_names_with_commas_are_names_too(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.users("disable", ODD, "alice") == 0
    assert place.lets_in(ODD) == {False}
    capsys.readouterr()
    assert place.users("list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["users"]
    assert {one["name"]: one["disabled"] for one in listed} == {
        "alice": True,
        "bob": False,
        ODD: True,
    }
    assert place.users("enable", ODD) == 0
    assert place.lets_in(ODD) == {True}
    assert place.lets_in("alice") == {False}


def test_users_that_there_are_not_are_not_found(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.users("disable", "nobody") == 1
    assert place.users("enable", "nobody") == 1
    assert place.users("enable", "bob") == 0
    assert "was not disabled" in capsys.readouterr().out


def test_users_stay_disabled_over_a_restart_until_the_stopped_broker_enables_them(
    stopped: Place,
) -> None:
    with stopped.running():
        assert stopped.users("disable", "alice", "--disconnect") == 0
        assert stopped.users_of_stopped("enable", "alice") == 3
    assert stopped.users_of_stopped("disable", ODD) == 0
    with stopped.running():
        assert stopped.lets_in("alice") == stopped.lets_in(ODD) == {False}
        assert stopped.lets_in("bob") == {True}
    assert stopped.users_of_stopped("enable", "alice", ODD) == 0
    with stopped.running():
        assert stopped.lets_in("alice") == stopped.lets_in(ODD) == {True}


def test_users_of_one_broker_and_of_all_are_disabled_where_it_counts(stopped: Place) -> None:
    with stopped_broker(str(stopped.data)) as directory:
        directory._set("1", "kohort.users.disabled", ["bob"])
    with stopped.running():
        assert stopped.users("disable", "alice") == 0
        assert stopped.lets_in("alice") == stopped.lets_in("bob") == {False}
        assert stopped.users("enable", "bob") == 0
        assert stopped.lets_in("bob") == {True}
    assert stopped.users_of_stopped("disable", "bob") == 0
    with stopped.running():
        assert stopped.lets_in("alice") == stopped.lets_in("bob") == {False}


def test_more_than_the_setting_takes_is_refused_and_changes_nothing(
    stopped: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "x" * 7_990
    with stopped_broker(str(stopped.data)) as directory:
        directory._set("", "kohort.users.disabled", [long])
    assert stopped.users_of_stopped("disable", ODD) == 4
    assert "at most 8000 characters" in capsys.readouterr().err
    with stopped.running():
        assert stopped.users("disable", ODD) == 4
        assert stopped.lets_in(ODD) == {True}


def test_users_cannot_be_disabled_by_what_is_given_at_the_start(stopped: Place) -> None:
    settings = stopped.settings | {"kohort.users.disabled": "alice"}
    with (
        pytest.raises(StartError, match="cannot be set at the start"),
        BrokerThread(stopped.data, overrides=settings),
    ):
        pass
