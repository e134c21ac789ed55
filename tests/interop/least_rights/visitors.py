"""A broker with an authorizer, whose users come through TLS and SCRAM and have a few rights."""

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kohort.cli import main
from tests.interop.least_rights.needs import NEEDS, Need, is_denied
from tests.support.brokers.secure_kafka import PASSWORD, SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.login import Login
from tests.support.clients.model import Record
from tests.support.waiting import wait_until

SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # By the listener without TLS, the tests' own; Kafka's node talks to itself there, too.
    "super.users": "User:ANONYMOUS",
    "group.min.session.timeout.ms": "1000",
    "transaction.state.log.num.partitions": "5",
}
MECHANISMS: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
VALUES: Final = [b"%d" % number for number in range(20)]
"""What is in a topic that somebody is to read."""


NOTHING: Final[Mapping[str, str]] = {}


class ProgramResult(NamedTuple):
    """What came of a client's work."""

    is_done: bool
    said: str
    """What it told of itself: errors, or what is of use when it should not have failed."""


Names = Mapping[str, str]
"""Real names by those of the document, such as TOPIC."""


class Client(NamedTuple):
    """A program that does the work of a row of the document."""

    row: str
    """What it needs; `besides` as well."""
    work: Callable[[Login, Names, Path], ProgramResult]
    """Told who it is, what its things are called, and a directory of its own."""
    filled: Sequence[str] = ()
    """Topics that are there and have records."""
    empty: Sequence[str] = ()
    """Topics that are there."""

    same: Mapping[str, str] = NOTHING
    """Names that are to be those of others: ID as GROUP is."""
    besides: str = ""
    extra: Sequence[str] = ()
    """Names of its things that are in no rule."""

    @property
    def needs(self) -> list[Need]:
        return [*NEEDS[self.row], *(NEEDS[self.besides] if self.besides else ())]


class Guarded:
    """The broker, and the administrator's hand on it."""

    def __init__(self, broker: SecureKafka | SecureKohort) -> None:
        self.broker = broker
        self.bootstrap = f"127.0.0.1:{broker.ports['SASL_SSL']}"
        self._admin = admin_client(broker.bootstrap)
        self._numbers = itertools.count()

    def attempt(
        self,
        client: Client,
        directory: Path,
        *,
        mechanism: str = "SCRAM-SHA-512",
        without: Need | None = None,
    ) -> ProgramResult:
        """What comes of the client's work by a new user with its rules, but for one."""
        given = [need for need in client.needs if need is not without]
        tag = f"{next(self._numbers)}-{uuid.uuid4().hex[:6]}"
        words = {word for need in client.needs for word in need.words()}
        words.update(client.filled, client.empty, client.extra)
        names = {word: f"{word.lower()}-{tag}" for word in words}
        names |= {one: names[other] for one, other in client.same.items()}
        self._create_topics([names[kind] for kind in (*client.filled, *client.empty)])
        for kind in client.filled:
            records = [Record(value, partition=0) for value in VALUES]
            ConfluentClient(self.broker.bootstrap).produce(names[kind], records)
        login = self.login(f"user-{tag}", mechanism)
        for need in given:
            self._allow(login.user, need.named(names))
        self.wait_known(login, len(given))
        return client.work(login, names, directory)

    def _create_topics(self, names: Sequence[str]) -> None:
        if not names:
            return
        topics = [NewTopic(name, 1, 1) for name in names]
        create_topics(self._admin, *topics)

    def login(self, user: str, mechanism: str = "SCRAM-SHA-512") -> Login:
        """A new user, who may do nothing."""
        info = ScramCredentialInfo(MECHANISMS[mechanism], 4_096)
        change = UserScramCredentialUpsertion(user, info, PASSWORD.encode())
        for future in self._admin.alter_user_scram_credentials([change]).values():
            future.result(30)
        authority = self.broker.authority.certificate
        return Login(self.bootstrap, authority, user, PASSWORD, mechanism)

    def _allow(self, user: str, rule: Sequence[str]) -> None:
        where = ("--bootstrap-server", self.broker.bootstrap)
        assert main(["acl", "add", user, *rule, *where]) == 0

    def wait_known(self, login: Login, rules: int) -> None:
        """A Kafka answers when its controller knows, a moment before its broker does."""
        anything: Any = None
        of_user = AclBindingFilter(
            *(ResourceType.ANY, anything, ResourcePatternType.ANY, f"User:{login.user}"),
            *(anything, AclOperation.ANY, AclPermissionType.ANY),
        )

        def is_known() -> bool:
            found = self._admin.describe_acls(of_user).result(30)
            users: Any = self._admin.describe_user_scram_credentials([login.user])
            return len(found) == rules and users[login.user].exception(30) is None

        wait_until(is_known, f"{rules} rules of {login.user}")


def done_or_denied(
    is_so: Callable[[], bool],
    said: Callable[[], str],
    has_ended: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait for it, or for a denial or the end of the program; whether it was neither of these."""
    wait_until(
        lambda: is_denied(said()) or has_ended() or is_so(),
        lambda: f"neither done nor denied: {said()[-3_000:]}",
        timeout_s=120,
    )
    return not is_denied(said()) and not has_ended()


@contextmanager
def guarded_broker(kind: str, directory: Path) -> Iterator[Guarded]:
    """A Kohort or a Kafka, by its name."""
    start = SecureKafka if kind == "kafka" else SecureKohort
    with start(directory, overrides=SETTINGS) as broker:
        yield Guarded(broker)
