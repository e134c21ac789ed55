"""Kafka and Kohort with a listener for tokens, and the issuer whose tokens they take."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.brokers.certificates import Authority
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.processes import java_env

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "kohort"
LISTENERS: Final = {"OAUTH": "SASL_PLAINTEXT", "OAUTHTLS": "SASL_SSL"}
"""Besides PLAINTEXT, by name."""

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED: Final = "org.apache.kafka.sasl.oauthbearer.allowed"


class Issuer:
    """Signs tokens; its public key is in a file under `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        listed = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        listed |= {"kid": "one", "alg": "RS256", "use": "sig"}
        path = directory / "jwks.json"
        path.write_text(json.dumps({"keys": [listed]}))
        self.url = path.as_uri()

    def token(self, subject: str, lifetime_s: float, **changes: object) -> tuple[str, float]:
        now_s = time.time()
        claims: dict[str, object] = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "iat": int(now_s),
            "exp": int(now_s + lifetime_s),
        }
        claims |= changes
        made: str = jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "one"})
        expires_s: Any = claims["exp"]
        return made, expires_s


def oauth_properties(
    ports: Mapping[str, int], authority: Authority, issuer: Issuer
) -> dict[str, str]:
    protocols = {"PLAINTEXT": "PLAINTEXT", **LISTENERS}
    found = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        "offsets.topic.num.partitions": "1",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    found["advertised.listeners"] = found["listeners"]
    return found


class OAuthKafka(KafkaServer):
    """`ports` has that of each listener, PLAINTEXT included."""

    def __init__(self, directory: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides=overrides)
        self.issuer = Issuer(directory / "issuer")
        self.authority = Authority(directory / "certificates")
        self.ports = {"PLAINTEXT": self.port, **{name: free_port() for name in LISTENERS}}
        controller = self.properties["controller.quorum.voters"].partition("@")[2]
        settings = oauth_properties(self.ports, self.authority, self.issuer)
        settings["listeners"] += f",CONTROLLER://{controller}"
        settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        for name in LISTENERS:
            prefix = f"listener.name.{name.lower()}.oauthbearer.sasl"
            settings[f"{prefix}.jaas.config"] = f"{_PACKAGE}.OAuthBearerLoginModule required;"
            handler = f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
            settings[f"{prefix}.server.callback.handler.class"] = handler
        self.properties |= settings | dict(overrides or {})

    def _jvm(self) -> list[str]:
        allowed = (f"-D{_ALLOWED}.{what}={self.issuer.url}" for what in ("urls", "files"))
        return java_env.quick_jvm(self.jars, "-Xmx512M", *allowed)


class OAuthKohort(KohortServer):
    def __init__(self, directory: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides=overrides)
        self.issuer = Issuer(directory / "issuer")
        self.authority = Authority(directory / "certificates")
        self.ports = {"PLAINTEXT": self.port, **{name: free_port() for name in LISTENERS}}
        self.overrides |= oauth_properties(self.ports, self.authority, self.issuer)
        self.overrides |= dict(overrides or {})
