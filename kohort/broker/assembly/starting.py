"""The responses of the HTTP ports while the broker starts.

Requests cannot be authenticated yet, so the responses contain only the progress of the start.
"""

import json
from http import HTTPStatus

from kohort.broker.assembly.metrics_page import MetricsPage, Scraped
from kohort.broker.http.messages import JSON, HttpRequest, HttpResponse
from kohort.broker.http.server import AbsentPage
from kohort.broker.topics.startup_progress import StartupProgress

RETRY_S = 2


def starting_response(startup: StartupProgress) -> AbsentPage:
    """Return a function that answers 503 with the progress until the start is over."""

    def respond(request: HttpRequest) -> HttpResponse | None:
        if not startup.phase:
            return None
        status, text = HTTPStatus.SERVICE_UNAVAILABLE, f"the broker is starting: {startup.text()}"
        retry = ("Retry-After", str(RETRY_S))
        if "text/html" in request.accept:
            # Browsers load the page again after this time.
            return HttpResponse.text(status, text, retry, ("Refresh", str(RETRY_S)))
        body = json.dumps({"error": text, "starting": startup.fields()}).encode()
        return HttpResponse(status, JSON, (body + b"\n",), (retry,))

    return respond


def starting_metrics(startup: StartupProgress) -> MetricsPage:
    """Return GET /metrics for the time of the start."""

    def make() -> Scraped:
        from kohort.broker.metrics.exposition import StartupExposition  # noqa: PLC0415 - 50 ms.

        return StartupExposition(startup)

    # Not on the threads that verify the logs.
    return MetricsPage(make, None)
