"""librdkafka's own tests of tokens that an issuer gives out: what passes on a Kafka passes on
ours.
"""

import math
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.foreign import librdkafka
from tests.support.brokers.oauth_brokers import OAuthKafka, OAuthKohort
from tests.support.processes.token_endpoint import TokenEndpoint

SESSION_MS: Final = 22_000
"""Half of it is the shortest lifetime of a token. librdkafka asks for another at 80 % of that or up
to 1 s later, and authenticates again at 90 %: were these less than 1 s apart, it might come with
the old one, and then again within 1 s, which no broker allows.
"""
OTHERS: Final = {
    "connections.max.reauth.ms": f"{SESSION_MS}",
    "transaction.state.log.num.partitions": "1",
}
LIFETIME_S: Final = 60

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]


@pytest.fixture(scope="module")
def built() -> Path:
    return librdkafka.librdkafka_tests()


@pytest.fixture(scope="module", params=[OAuthKohort, OAuthKafka], ids=["kohort", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OAuthKohort | OAuthKafka]:
    """Each of the two in turn."""
    kind: type[OAuthKohort | OAuthKafka] = request.param
    with kind(tmp_path_factory.mktemp("broker"), overrides=OTHERS) as started:
        yield started


@pytest.fixture
def endpoints(broker: OAuthKohort | OAuthKafka) -> Iterator[dict[str, TokenEndpoint]]:
    """An endpoint for good tokens, which last as long as the scope says, one for tokens that are
    for others, and one for tokens that have expired.
    """

    def good() -> tuple[str, float]:
        asked = re.search(r"lifeSeconds=(\d+)", found["VALID"].asked[-1].form.get("scope", ""))
        lifetime_s = int(asked[1]) if asked else LIFETIME_S
        # The time that is told is in whole seconds.
        ends_s = math.ceil(time.time() + lifetime_s)
        return broker.issuer.token("orders", lifetime_s, exp=ends_s)[0], lifetime_s

    def for_others() -> tuple[str, float]:
        return broker.issuer.token("orders", LIFETIME_S, aud="others")[0], LIFETIME_S

    def expired() -> tuple[str, float]:
        return broker.issuer.token("orders", -LIFETIME_S)[0], 1

    found: dict[str, TokenEndpoint] = {}
    with ExitStack() as stack:
        for name, give in (("VALID", good), ("INVALID", for_others), ("EXPIRED_TOKEN", expired)):
            found[name] = stack.enter_context(TokenEndpoint(give))
        yield found


@pytest.mark.parametrize(("name", "parts"), [("0126", 3), ("0142", 8)])
def test_librdkafka_with_tokens(
    name: str,
    parts: int,
    built: Path,
    broker: OAuthKohort | OAuthKafka,
    endpoints: dict[str, TokenEndpoint],
    tmp_path: Path,
) -> None:
    settings = {
        "metadata.broker.list": f"127.0.0.1:{broker.ports['OAUTHTLS']}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.authority.certificate),
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "OIDC",
        "sasl.oauthbearer.client.id": "orders",
        "sasl.oauthbearer.client.secret": "hidden",
        "sasl.oauthbearer.token.endpoint.url": endpoints["VALID"].url,
    }
    urls = {f"{kind}_OIDC_URL": endpoint.url for kind, endpoint in endpoints.items()}
    said = librdkafka.run(built, name, tmp_path, settings, environment=urls)
    assert said.count(": PASS (") == parts, said[-20_000:]
