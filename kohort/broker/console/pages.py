"""The console's pages: its files, its stream of events, and JSON for both browsers and scripts.

Pages run one at a time, like the other pages of the HTTP ports: thirty at once, each with a time
slice in every event loop iteration, would delay the groups.
"""

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.broker.console.advising import Advisor
from kohort.broker.console.broker_view import wait_broker, wait_set_configs
from kohort.broker.console.checks import CHECKED_LISTED_MAX, Checker
from kohort.broker.console.groups_view import GroupsView, GroupView
from kohort.broker.console.hub import EventHub
from kohort.broker.console.lag import Ages, AgesSeen
from kohort.broker.console.recent import Recents
from kohort.broker.console.records import LISTED_MAX, RecordFormatter, listed
from kohort.broker.console.resetting import Resetting
from kohort.broker.console.source import ConsoleSource, GroupsSource
from kohort.broker.console.survey import Surveyor
from kohort.broker.console.timed_cache import TimedCache
from kohort.broker.console.topic_records import RecordReader, parse
from kohort.broker.console.topics_view import TopicsView
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.http.json_parts import SLICE_MS, answer, wait_dump
from kohort.broker.http.messages import BadRequestError, HttpRequest, HttpResponse, ResponseOrStream
from kohort.broker.http.requesters import denied, requester_of
from kohort.broker.http.routes import Query
from kohort.broker.http.transaction_pages import TransactionPages
from kohort.broker.runtime.slices import Slice
from kohort.groups.views import waiting_json
from kohort.protocol.errors import ErrorCode

STATIC: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
STYLE: Final = "console.css"

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)
"""Matches gzip in an Accept-Encoding header, unless it is refused by q=0."""


class StaticFile(NamedTuple):
    data: bytes
    packed: bytes
    """The content compressed with gzip, to a third of its size."""
    content_type: str
    tag: str
    """Entity tag; changes with the content. The tag of the compressed form begins with this tag."""

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the file, or 304 if the browser's cached copy is current."""
        headers = [("Cache-Control", "no-cache"), ("Vary", "Accept-Encoding")]
        tag, data = self.tag, self.data
        if _GZIP.search(request.accept_encoding):
            tag, data = f'{tag[:-1]}-gzip"', self.packed
            headers.append(("Content-Encoding", "gzip"))
        headers.append(("ETag", tag))
        if tag in request.if_none_match:
            return HttpResponse(HTTPStatus.NOT_MODIFIED, self.content_type, (), tuple(headers))
        return HttpResponse(HTTPStatus.OK, self.content_type, (data,), tuple(headers))


_OF_BROKER: Final = re.compile(rb'<a href="#/(?:topics|transactions|broker)">.*\n')
"""Matches the links in the HTML page that lead to pages about the broker."""


def load_files(
    directory: Path = STATIC, *, has_broker: bool = True, allows_write: bool = False
) -> dict[str, StaticFile]:
    """Return the files by name; `has_broker`: include pages about topics and the broker;
    `allows_write`: include pages that change something.
    """
    loaded = {}
    for path in sorted(directory.iterdir()):
        content_type = _TYPES.get(path.suffix)
        if content_type is not None:
            data = path.read_bytes()
            if path.name == INDEX and not has_broker:
                data = _OF_BROKER.sub(b"", data)
            if path.name == INDEX and allows_write:
                data = data.replace(b"<body>", b"<body data-writes>")
            if path.name == STYLE:
                data = files("kohort.groups.history").joinpath("colors.css").read_bytes() + data
            tag = f'"{sha256(data).hexdigest()[:20]}"'
            packed = gzip.compress(data, mtime=0)
            loaded[path.name] = StaticFile(data, packed, content_type, tag)
    return loaded


Ask: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]

RECORDS_DEFAULT: Final = 100

_SEQUENCE: Final = re.compile(r"[0-9]{1,9}")


class GroupConsole:
    """The pages about groups, for which no broker is needed."""

    has_broker = False
    """Whether the HTML page links to the pages about the broker."""
    allows_write = False
    """Whether the HTML page links to pages that change something."""

    def __init__(self, source: GroupsSource, ages: AgesSeen) -> None:
        self._source = source
        self._lock = asyncio.Lock()
        self._files: dict[str, StaticFile] | None = None
        recents = Recents()
        self._survey = TimedCache(Surveyor(source).wait_look, source.clock)
        self._checks = TimedCache(Checker(source, recents).wait_checks, source.clock)
        self._groups = GroupsView(source, self._survey, ages, recents)
        self._formatter = RecordFormatter(source.history, source.executor)
        self._group = GroupView(source, ages, recents, self._formatter)
        self._advisor = Advisor(source.history)
        self.hub = EventHub(source.groups, source.clock)

    # Files.

    async def index(self, request: HttpRequest) -> HttpResponse:
        """GET /: the HTML page that loads all scripts."""
        return await self._file(INDEX, request)

    async def static(self, request: HttpRequest) -> HttpResponse:
        """GET /static/{file}."""
        (name,) = request.path_values
        return await self._file(name, request)

    async def _file(self, name: str, request: HttpRequest) -> HttpResponse:
        if self._files is None:
            loop = asyncio.get_running_loop()
            load = partial(load_files, has_broker=self.has_broker, allows_write=self.allows_write)
            self._files = await loop.run_in_executor(self._source.executor, load)
        file = self._files.get(name)
        if file is None:
            return HttpResponse.error(HTTPStatus.NOT_FOUND, "no such file")
        return file.answer(request)

    # Events.

    async def events(self, request: HttpRequest) -> ResponseOrStream:
        """GET /events: which groups have changed, as a stream of server-sent events."""
        if request.method == "HEAD":
            return HttpResponse(HTTPStatus.OK, "text/event-stream", ())
        stream = self.hub.open()
        if stream is None:
            text = "too many open event streams; poll /api/groups instead"
            return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, text, ("Retry-After", "30"))
        return stream

    # Data.

    async def groups(self, request: HttpRequest) -> HttpResponse:
        """GET /api/groups?filter=TEXT&state=STATE&sort=[-]NAME&page=N."""
        query = Query(request.query, "filter", "state", "sort", "page")
        return await self._data(lambda: self._groups.wait_page(query))

    async def group(self, request: HttpRequest) -> HttpResponse:
        """GET /api/groups/{group}."""
        (group_id,) = request.path_values
        group = self._source.groups.living_group(group_id)
        if group is None:
            return self._without_group(group_id)
        return await self._data(lambda: self._group.wait_group(group))

    async def rebalances(self, request: HttpRequest) -> HttpResponse:
        """GET /api/groups/{group}/rebalances?last=N: summaries of N records, oldest first."""
        (group_id,) = request.path_values
        query = Query(request.query, "last")
        last = query.number("last", RECORDS_DEFAULT, at_most=LISTED_MAX)
        history = self._source.history
        group = self._source.groups.living_group(group_id)
        if group is None and not history.stored_records(group_id):
            return self._without_group(group_id)

        async def wait_data() -> dict[str, Any]:
            time_slice = Slice(self._source.clock, SLICE_MS)
            records = await listed(history, group_id, last, time_slice)
            now = self._source.groups.now()
            rebalances, avoided = history.totals(group_id)
            described = None if group is None else group.describe()
            return {
                "group": group_id,
                "at_ms": now.wall_ms,
                "state": None if described is None else described.state,
                "type": None if described is None else described.kind.value,
                "waiting": waiting_json(
                    None if group is None else group.describe_waiting(), now, with_members=False
                ),
                "total_rebalances": rebalances,
                "total_avoided": avoided,
                **records,
            }

        return await self._data(wait_data)

    async def rebalance(self, request: HttpRequest) -> HttpResponse:
        """GET /api/groups/{group}/rebalances/{sequence}: one record, with all its members."""
        group_id, number = request.path_values
        if not _SEQUENCE.fullmatch(number):
            raise BadRequestError("the sequence of a rebalance must be a number")
        async with self._lock:
            time_slice = Slice(self._source.clock, SLICE_MS)
            parts = await self._formatter.wait_record(group_id, int(number), time_slice)
        if parts is None:
            return HttpResponse.error(HTTPStatus.NOT_FOUND, "the history has no such rebalance")
        head = b'{"now_ms":%d,' % self._source.clock.wall_ms()
        return answer([head, parts[0][1:], *parts[1:]])

    async def advice(self, request: HttpRequest) -> HttpResponse:
        """GET /api/groups/{group}/advice: the output of `kohort groups advise`; takes seconds."""
        (group_id,) = request.path_values
        if not self._source.history.stored_records(group_id):
            return self._without_group(group_id)
        return await self._advisor.wait_answer(group_id)

    async def checks(self, request: HttpRequest) -> HttpResponse:
        """GET /api/checks?limit=N: groups with findings, those with warnings first."""
        most = Query(request.query, "limit").number(
            "limit", CHECKED_LISTED_MAX, at_most=CHECKED_LISTED_MAX
        )

        async def wait_data() -> dict[str, Any]:
            data = await self._checks.wait()
            return data | {"groups": data["groups"][:most]}

        return await self._data(wait_data)

    async def _data(self, ask: Ask) -> HttpResponse:
        async with self._lock:
            data = await ask()
            parts = await wait_dump(data, Slice(self._source.clock, SLICE_MS))
        return answer(parts)

    def _without_group(self, group_id: str) -> HttpResponse:
        error = self._source.groups.read_error(group_id)
        if error:
            text = f"the state of this group is unavailable now: {ErrorCode(error).name}"
            return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, text)
        gone = bool(self._source.history.stored_records(group_id))
        text = (
            "the group does not exist any more; its history is still available"
            if gone
            else "no such group"
        )
        return HttpResponse.error(HTTPStatus.NOT_FOUND, text)


class ConsolePages(GroupConsole):
    """All pages of a broker's console."""

    has_broker = True

    def __init__(self, source: ConsoleSource) -> None:
        ages = Ages(source.topics, source.clock, source.executor, source.offloaded_reads)
        super().__init__(source, ages)
        self._broker = source
        self.allows_write = source.allows_write
        self._topics = TopicsView(source, self._survey, ages)
        self._records = RecordReader(source.topics, source.clock)
        transactions = TransactionPages(source.transactions, source.topics, source.clock)
        self.transactions = transactions.list_open
        """GET /api/transactions?limit=N: open transactions, as on the metrics port."""
        self._resetting = Resetting(source)
        self.reset = self._resetting.execute
        """POST /api/groups/{group}/reset."""
        self._slow = asyncio.Lock()
        """Held by pages that read files; they must not delay the others."""

    async def topics(self, request: HttpRequest) -> HttpResponse:
        """GET /api/topics?filter=TEXT&internal=yes&page=N."""
        query = Query(request.query, "filter", "internal", "page")
        return await self._data(lambda: self._topics.wait_page(query))

    async def topic(self, request: HttpRequest) -> HttpResponse:
        """GET /api/topics/{topic}."""
        (name,) = request.path_values
        topic = self._broker.topics.get(name)
        if topic is None:
            return HttpResponse.error(HTTPStatus.NOT_FOUND, "no such topic")
        sees_configs = requester_of(request).sees(
            Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name
        )
        return await self._data(lambda: self._topics.wait_topic(topic, with_configs=sees_configs))

    async def records(self, request: HttpRequest) -> HttpResponse:
        """GET /api/topics/{topic}/records?from=&at=&partition=&limit=&whole=yes; needs READ."""
        (name,) = request.path_values
        if not self._broker.may(request, Operation.READ, ResourceType.TOPIC, name):
            return denied("READ on the topic")
        wanted = parse(Query(request.query, "from", "at", "partition", "limit", "whole"))
        topic = self._broker.topics.get(name)
        if topic is None:
            return HttpResponse.error(HTTPStatus.NOT_FOUND, "no such topic")
        async with self._slow:
            data = await self._records.wait_records(topic, wanted)
            return answer(await wait_dump(data, Slice(self._source.clock, SLICE_MS)))

    async def preview_reset(self, request: HttpRequest) -> HttpResponse:
        """GET /api/groups/{group}/reset: show what an offset reset would change."""
        async with self._slow:
            return await self._resetting.preview(request)

    async def broker(self, _request: HttpRequest) -> HttpResponse:
        """GET /api/broker."""
        return await self._data(lambda: wait_broker(self._broker))

    async def broker_configs(self, request: HttpRequest) -> HttpResponse:
        """GET /api/broker/configs: the settings that are not the default; needs DESCRIBE_CONFIGS on
        the cluster.
        """
        if not requester_of(request).may(
            Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return denied("DESCRIBE_CONFIGS on the cluster")
        return await self._data(lambda: wait_set_configs(self._broker))
