"""Pages for probes: whether the process is alive, and whether it is ready for clients."""

from collections.abc import Callable, Sequence
from http import HTTPStatus

from kohort.broker.http.messages import HttpRequest, HttpResponse, Page

NotReady = Callable[[], str | None]
"""Returns why the broker cannot serve clients now, None if it can."""


Failing = Callable[[], Sequence[str]]
"""Returns the names of the broker's own tasks that fail at present."""


def health_pages(not_ready: NotReady, failing: Failing) -> dict[str, Page]:
    """Return the pages by path, under the names that Prometheus' own servers use."""

    async def healthy(_: HttpRequest) -> HttpResponse:
        # An answer shows that the loop runs. What fails is tried again, and a restart would not
        # mend it: the status stays, so that no supervisor restarts the broker for ever.
        names = failing()
        text = f"healthy, but failing: {', '.join(names)}" if names else "healthy"
        return HttpResponse.text(HTTPStatus.OK, text)

    async def ready(_: HttpRequest) -> HttpResponse:
        reason = not_ready()
        if reason is not None:
            return HttpResponse.text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        return HttpResponse.text(HTTPStatus.OK, "ready")

    return {"/-/healthy": healthy, "/-/ready": ready}
