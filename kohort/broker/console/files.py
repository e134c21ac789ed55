"""The console's static files: a page, its style sheet and its JavaScript modules."""

import gzip
import re
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from kohort.broker.http.messages import HttpRequest, HttpResponse

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
    """The content compressed with gzip, a third of its size."""
    content_type: str
    tag: str
    """Entity tag; changes with the content. The tag of the compressed form has the same
    beginning."""

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


_OF_BROKER: Final = re.compile(rb'<a href="#/(?:topics|broker)">.*\n')
"""Matches the links of the HTML page to pages about the broker."""


def load_files(directory: Path = STATIC, *, has_broker: bool = True) -> dict[str, StaticFile]:
    """Return the files by name; `has_broker` is whether there are pages about topics and the
    broker.
    """
    loaded = {}
    for path in sorted(directory.iterdir()):
        content_type = _TYPES.get(path.suffix)
        if content_type is not None:
            data = path.read_bytes()
            if path.name == INDEX and not has_broker:
                data = _OF_BROKER.sub(b"", data)
            if path.name == STYLE:
                data = files("kohort.groups.history").joinpath("colors.css").read_bytes() + data
            tag = f'"{sha256(data).hexdigest()[:20]}"'
            packed = gzip.compress(data, mtime=0)
            loaded[path.name] = StaticFile(data, packed, content_type, tag)
    return loaded
