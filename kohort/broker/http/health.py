"""Pages for probes: whether the process is alive, and whether it is ready for clients."""

from collections.abc import Callable
from http import HTTPStatus

from kohort.broker.http.messages import HttpRequest, HttpResponse, Page

NotReady = Callable[[], str | None]
"""Returns why the broker cannot serve clients now, None if it can."""


def health_pages(not_ready: NotReady) -> dict[str, Page]:
    """Return the pages by path, under the names that Prometheus' own servers use."""

    async def healthy(_: HttpRequest) -> HttpResponse:
        # An answer shows that the loop runs; there is nothing else to check.
        return HttpResponse.text(HTTPStatus.OK, "healthy")

    async def ready(_: HttpRequest) -> HttpResponse:
        reason = not_ready()
        if reason is not None:
            return HttpResponse.text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        return HttpResponse.text(HTTPStatus.OK, "ready")

    return {"/-/healthy": healthy, "/-/ready": ready}
