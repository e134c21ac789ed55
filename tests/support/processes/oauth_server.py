"""A server of OAuth tokens, with OpenID Connect's pages: NAV's, which has issuers at will."""

import json
import os
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.processes import java_env
from tests.support.waiting import wait_until

_MAIN: Final = "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt"
_STORE_PASSWORD: Final = "of the tests"


class OAuthServer:
    """Gives each client that asks by client credentials a token whose subject is the client's id.

    Its page is `issuer`; `stranger` is another issuer, with keys of its own.
    """

    def __init__(self, directory: Path, authority: Authority, audience: str) -> None:
        java_env.fetch("oauth")
        self._directory = directory
        self._authority = authority
        self._audience = audience
        self._port = free_port()
        self.issuer = f"https://127.0.0.1:{self._port}/company"
        self.stranger = f"https://127.0.0.1:{self._port}/stranger"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        command = [
            *(java_env.java(), "-Xmx256M", *java_env.QUICK_START),
            *("-cp", f"{java_env.CACHE / 'oauth'}/*", _MAIN),
        ]
        settings = {
            "SERVER_HOSTNAME": "127.0.0.1",
            "SERVER_PORT": f"{self._port}",
            "JSON_CONFIG": json.dumps(self._config()),
        }
        with (self._directory / "oauth.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, env=os.environ | settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._is_ready, self._words)
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _config(self) -> dict[str, Any]:
        store = self._authority.issue_store("issuer", "IP:127.0.0.1", _STORE_PASSWORD)
        given = {
            "requestParam": "grant_type",
            "match": "client_credentials",
            "claims": {"sub": "${clientId}", "aud": [self._audience]},
        }
        return {
            "interactiveLogin": False,
            "httpServer": {
                "type": "NettyWrapper",
                "ssl": {
                    "keystoreFile": str(store),
                    "keystoreType": "PKCS12",
                    "keystorePassword": _STORE_PASSWORD,
                    "keyPassword": _STORE_PASSWORD,
                },
            },
            "tokenCallbacks": [
                {"issuerId": issuer, "tokenExpiry": 60, "requestMappings": [given]}
                for issuer in ("company", "stranger")
            ],
        }

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._words()
        trusted = ssl.create_default_context(cafile=self._authority.certificate)
        try:
            with urllib.request.urlopen(f"{self.issuer}/jwks", context=trusted, timeout=5) as page:
                return bool(json.load(page)["keys"])
        except OSError:
            return False

    def _words(self) -> str:
        return (self._directory / "oauth.log").read_text(errors="replace")[-3_000:]
