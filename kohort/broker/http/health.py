"""Pages for probes: is the process alive, and should clients be sent to it."""

from collections.abc import Callable
from http import HTTPStatus

from kohort.broker.http.messages import HttpRequest, HttpResponse, Page

NotReady = Callable[[], str | None]
"""Why the broker cannot serve clients now, None if it can."""


def health_pages(not_ready: NotReady) -> dict[str, Page]:
    """The pages by path, under the names that Prometheus' own servers use."""

    async def healthy(_: HttpRequest) -> HttpResponse:
        # A loop that answers this is a loop that turns; there is nothing else to check.
        return HttpResponse.text(HTTPStatus.OK, "healthy")

    async def ready(_: HttpRequest) -> HttpResponse:
        reason = not_ready()
        if reason is not None:
            return HttpResponse.text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        return HttpResponse.text(HTTPStatus.OK, "ready")

    return {"/-/healthy": healthy, "/-/ready": ready}
