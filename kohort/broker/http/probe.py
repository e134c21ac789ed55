"""``python -m kohort.broker.http.probe``: whether the broker on this machine is ready, for the
health check of a container.

The port is that of the environment variable KOHORT_METRICS_PORT. If the port has TLS, the
certificate is not verified: it need not be valid for localhost, and the response is only a status.
Exits with 0 if the broker is ready, otherwise with 1 and the reason.
"""

import http.client
import os
import ssl
import sys

PORT = 9308
TIMEOUT_S = 2


def probe(port: int) -> str | None:
    """Return why the broker is not ready; None if it is."""
    connections = (
        http.client.HTTPConnection("localhost", port, timeout=TIMEOUT_S),
        http.client.HTTPSConnection(
            "localhost",
            port,
            timeout=TIMEOUT_S,
            context=ssl._create_unverified_context(),  # noqa: S323, SLF001 - see the module.
        ),
    )
    reason = ""
    for connection in connections:
        try:
            connection.request("GET", "/-/ready")
            response = connection.getresponse()
            reason = response.read(1_000).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            # A port with TLS closes the plain connection; HTTPS is tried next.
            reason = str(error) or type(error).__name__
        else:
            return None if response.status == http.client.OK else reason
        finally:
            connection.close()
    return reason


if __name__ == "__main__":
    sys.exit(probe(int(os.environ.get("KOHORT_METRICS_PORT", PORT))))
