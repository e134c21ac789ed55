"""A client of a schema registry, for values in Confluent's wire format.

A value is a zero byte, the schema's id in four bytes, and the encoded data. Ids are permanent, so
each schema is requested once per executor.
"""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

from kohort.pipeline.errors import RegistryError

HEADER_BYTES: Final = 5
_TIMEOUT_S: Final = 30.0
_ANSWER_MAX: Final = 1 << 16
"""Maximum size of a 404 response."""

UNKNOWN_S: Final = 10.0
"""Unknown ids are not requested again for this time: a topic may contain many of them."""

UNKNOWN_MAX: Final = 1_000
"""Maximum number of unknown ids to remember: values may contain any id."""
_ACCEPTED: Final = "application/vnd.schemaregistry.v1+json, application/json"


class UndecodableError(Exception):
    """A value cannot be decoded; the text says why."""


@dataclass(frozen=True, slots=True)
class Registered:
    text: str
    kind: str
    """AVRO, PROTOBUF or JSON."""
    references: "tuple[Registered, ...]" = ()
    """The schemas that this schema needs, each before the schemas that refer to it."""


@dataclass(slots=True)
class Registry:
    """The registry at a URL; `user` is `name:password`, or None."""

    url: str
    user: str | None = None
    now_s: Callable[[], float] = time.monotonic
    _known: dict[tuple[int, str], Registered] = field(default_factory=dict)
    _unknown: dict[int, float] = field(default_factory=dict)
    """When an unknown schema id was last requested, by id."""

    def schema(self, number: int, form: str = "") -> Registered:
        """Return the schema with this id; `form` is the requested representation, empty for the
        default.

        Raises:
            UndecodableError: the registry has no such schema.
            RegistryError
        """
        key = (number, form)
        if key not in self._known:
            requested_s = self._unknown.get(number)
            if requested_s is not None and self.now_s() - requested_s < UNKNOWN_S:
                raise UndecodableError(f"the registry has no schema {number}")
            more = f"?format={form}" if form else ""
            content = self._get(f"/schemas/ids/{number}{more}")
            if content is None:
                if len(self._unknown) >= UNKNOWN_MAX:
                    self._unknown.clear()
                self._unknown[number] = self.now_s()
                raise UndecodableError(f"the registry has no schema {number}")
            self._known[key] = self._with_references(content, form)
        return self._known[key]

    def _with_references(self, content: dict[str, Any], form: str) -> Registered:
        before: list[Registered] = []
        for reference in content.get("references") or []:
            subject = quote(reference["subject"], safe="")
            more = f"?format={form}" if form else ""
            other = self._get(f"/subjects/{subject}/versions/{reference['version']}{more}")
            if other is None:
                raise UndecodableError(
                    f"the registry has no {reference['subject']}, which the schema references"
                )
            referred = self._with_references(other, form)
            before += [*referred.references, replace(referred, references=())]
        # Registries may omit the type of Avro schemas only.
        return Registered(content["schema"], content.get("schemaType") or "AVRO", tuple(before))

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the response; None if it is 404."""
        request = urllib.request.Request(  # noqa: S310 - the user's URL.
            self.url.rstrip("/") + path, headers={"Accept": _ACCEPTED}
        )
        if self.user is not None:
            credentials = base64.b64encode(self.user.encode()).decode()
            request.add_header("Authorization", f"Basic {credentials}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                content: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                self._check_is_registry(error)
                return None
            raise RegistryError(f"the schema registry rejected the request: {error}") from error
        except (OSError, ValueError) as error:
            raise RegistryError(f"the schema registry does not answer: {error}") from error
        if not isinstance(content.get("schema"), str):
            raise self._no_registry()
        return content

    def _check_is_registry(self, missing: urllib.error.HTTPError) -> None:
        """Raise RegistryError if a 404 has no `error_code`, because the URL is not a registry's."""
        try:
            body = json.loads(missing.read(_ANSWER_MAX))
        except (OSError, ValueError):
            body = None
        if not isinstance(body, dict) or "error_code" not in body:
            raise self._no_registry() from missing

    def _no_registry(self) -> RegistryError:
        return RegistryError(
            f"{self.url} is not a schema registry; does the URL include the path of its API?"
        )


def split_header(value: bytes) -> tuple[int, bytes]:
    """Return the schema's id and the data. Raises UndecodableError."""
    if len(value) < HEADER_BYTES or value[0]:
        raise UndecodableError("the value does not begin with a schema id")
    return int.from_bytes(value[1:HEADER_BYTES]), value[HEADER_BYTES:]
