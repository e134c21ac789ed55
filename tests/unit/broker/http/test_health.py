"""What probes are told."""

from collections.abc import Sequence
from http import HTTPStatus

from kohort.broker.http.health import health_pages
from kohort.broker.http.messages import HttpRequest


async def ask(
    path: str, reason: str | None, failing: Sequence[str] = ()
) -> tuple[HTTPStatus, bytes]:
    page = health_pages(lambda: reason, lambda: failing)[path]
    response = await page(HttpRequest("GET", path, "", ""))
    return response.status, b"".join(response.body)


async def test_a_broker_that_serves_clients_is_ready() -> None:
    assert await ask("/-/ready", None) == (HTTPStatus.OK, b"ready\n")


async def test_a_broker_that_does_not_serve_clients_says_why() -> None:
    assert await ask("/-/ready", "stopping") == (HTTPStatus.SERVICE_UNAVAILABLE, b"stopping\n")


async def test_a_broker_that_is_not_ready_is_healthy_all_the_same() -> None:
    assert await ask("/-/healthy", "stopping") == (HTTPStatus.OK, b"healthy\n")


async def test_a_broker_whose_own_work_fails_is_healthy_and_says_what_fails() -> None:
    answer = await ask("/-/healthy", None, ["compaction", "retention"])
    assert answer == (HTTPStatus.OK, b"healthy, but failing: compaction, retention\n")
    assert await ask("/-/ready", None, ["compaction"]) == (HTTPStatus.OK, b"ready\n")
