"""GET /-/healthy and /-/ready, for supervisors and load balancers."""

from collections.abc import Callable, Sequence
from http import HTTPStatus

from kohort.broker.http.messages import HttpRequest, HttpResponse, Page

NotReady = Callable[[], str | None]
"""Returns why the process cannot do its work now, None if it can."""

Failing = Callable[[], Sequence[str]]
"""Returns the names of background tasks that are failing."""


def health_pages(not_ready: NotReady, failing: Failing) -> dict[str, Page]:
    """Return the pages by path; the paths are the same as those of Prometheus' own servers."""

    async def healthy(_: HttpRequest) -> HttpResponse:
        # A response shows that the event loop runs. Failing tasks are retried, and a restart would
        # not fix them. So the status is 200 even then: otherwise a supervisor would keep restarting
        # the broker.
        names = failing()
        text = f"healthy, but failing: {', '.join(names)}" if names else "healthy"
        return HttpResponse.text(HTTPStatus.OK, text)

    async def ready(_: HttpRequest) -> HttpResponse:
        reason = not_ready()
        if reason is not None:
            return HttpResponse.text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        return HttpResponse.text(HTTPStatus.OK, "ready")

    return {"/-/healthy": healthy, "/-/ready": ready}
