"""Security headers of all responses of the console, and rejection of cross-site requests.

The console is read-only. The remaining risks are that another web page reads data through a user's
browser or embeds the console, and that names chosen by clients inject markup. So names are text
nodes, and scripts come only from files.
"""

from http import HTTPStatus
from typing import Final

from kohort.broker.http.messages import HttpRequest, HttpResponse

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", POLICY),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
)

_OWN: Final = frozenset({"", "same-origin", "none"})
"""Allowed values of Sec-Fetch-Site for data: absent (no browser), this site, the address bar."""


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return the error response to a cross-site request for data; None for allowed requests."""
    if request.fetch_site in _OWN:
        return None
    text = "cross-site request rejected (Sec-Fetch-Site)"
    return HttpResponse.error(HTTPStatus.FORBIDDEN, text)


def guarded(response: HttpResponse) -> HttpResponse:
    given = {name for name, _ in response.headers}
    added = tuple(header for header in HEADERS if header[0] not in given)
    return response._replace(headers=response.headers + added)
