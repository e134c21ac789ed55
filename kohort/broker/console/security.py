"""Headers of all the console's answers, and refusal of cross-site requests.

The console is read-only. What remains is that no other web page may read data through a visitor's
browser, or embed the console; and that names chosen by clients cannot inject markup: names are text
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
"""Values of Sec-Fetch-Site that may read data: no browser, this site, and an address bar."""


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return the refusal of a request for data, None if it is allowed."""
    if request.fetch_site in _OWN:
        return None
    text = "asked for by a page from elsewhere (Sec-Fetch-Site)"
    return HttpResponse.error(HTTPStatus.FORBIDDEN, text)


def guarded(answer: HttpResponse) -> HttpResponse:
    """Return the answer with the security headers."""
    given = {name for name, _ in answer.headers}
    added = tuple(header for header in HEADERS if header[0] not in given)
    return answer._replace(headers=answer.headers + added)
