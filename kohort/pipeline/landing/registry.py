"""Schemas of a schema registry, by the ids that are in front of values: Confluent's wire format.

A value is a zero byte, the id of its schema in four bytes, and what the schema describes. Ids mean
the same for ever, so a schema is asked for once. Executors do this, each for itself.
"""

from __future__ import annotations

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
"""Bytes of the answer that there is no such thing."""

UNKNOWN_S: Final = 10.0
"""How long an id that is not known is not asked for again: a topic may be full of it."""

UNKNOWN_MAX: Final = 1_000
"""How many unknown ids are kept: values may name any."""
_ACCEPTED: Final = "application/vnd.schemaregistry.v1+json, application/json"


class UndecodableError(Exception):
    """A value is not what it should be; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema."""

    text: str
    kind: str
    """AVRO, PROTOBUF or JSON."""
    references: tuple[Registered, ...] = ()
    """What it refers to, each before those that refer to it."""


@dataclass(slots=True)
class Registry:
    """The registry of one address; `user` is `name:password`, or None."""

    url: str
    user: str | None = None
    now_s: Callable[[], float] = time.monotonic
    _known: dict[tuple[int, str], Registered] = field(default_factory=dict)
    _unknown: dict[int, float] = field(default_factory=dict)
    """When they were asked for."""

    def schema(self, number: int, form: str = "") -> Registered:
        """The schema of this id; `form` is that in which it is asked for, the usual one if empty.

        Raises:
            UndecodableError: there is none.
            RegistryError
        """
        key = (number, form)
        if key not in self._known:
            asked_s = self._unknown.get(number)
            if asked_s is not None and self.now_s() - asked_s < UNKNOWN_S:
                raise UndecodableError(f"the registry has no schema {number}")
            more = f"?format={form}" if form else ""
            found = self._ask(f"/schemas/ids/{number}{more}")
            if found is None:
                if len(self._unknown) >= UNKNOWN_MAX:
                    self._unknown.clear()
                self._unknown[number] = self.now_s()
                raise UndecodableError(f"the registry has no schema {number}")
            self._known[key] = self._with_references(found, form)
        return self._known[key]

    def _with_references(self, found: dict[str, Any], form: str) -> Registered:
        before: list[Registered] = []
        for one in found.get("references") or []:
            subject = quote(one["subject"], safe="")
            more = f"?format={form}" if form else ""
            other = self._ask(f"/subjects/{subject}/versions/{one['version']}{more}")
            if other is None:
                raise UndecodableError(
                    f"the registry has no {one['subject']}, which is referred to"
                )
            referred = self._with_references(other, form)
            before += [*referred.references, replace(referred, references=())]
        # Only of Avro, which was there first, a registry need not say it.
        return Registered(found["schema"], found.get("schemaType") or "AVRO", tuple(before))

    def _ask(self, path: str) -> dict[str, Any] | None:
        """The answer; None: it has no such thing."""
        request = urllib.request.Request(  # noqa: S310 - where the user says it is.
            self.url.rstrip("/") + path, headers={"Accept": _ACCEPTED}
        )
        if self.user is not None:
            told = base64.b64encode(self.user.encode()).decode()
            request.add_header("Authorization", f"Basic {told}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                self._check_is_registry(error)
                return None
            raise RegistryError(f"the schema registry refuses: {error}") from error
        except (OSError, ValueError) as error:
            raise RegistryError(f"the schema registry does not answer: {error}") from error
        if not isinstance(found.get("schema"), str):
            raise self._no_registry()
        return found

    def _check_is_registry(self, missing: urllib.error.HTTPError) -> None:
        """A registry says of what it does not have that it has it not; at a wrong address, a web
        server has nothing whatever is asked for.
        """
        try:
            told = json.loads(missing.read(_ANSWER_MAX))
        except (OSError, ValueError):
            told = None
        if not isinstance(told, dict) or "error_code" not in told:
            raise self._no_registry() from missing

    def _no_registry(self) -> RegistryError:
        return RegistryError(
            f"what answers at {self.url} is no schema registry; is the path of its API in that URL?"
        )


def parted(value: bytes) -> tuple[int, bytes]:
    """The id of the schema, and what follows. Raises UndecodableError."""
    if len(value) < HEADER_BYTES or value[0]:
        raise UndecodableError("it does not begin with the id of a schema")
    return int.from_bytes(value[1:HEADER_BYTES]), value[HEADER_BYTES:]
