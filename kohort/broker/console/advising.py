"""Runs ``kohort groups advise`` for a group, in a separate process.

Replaying a group's history under other settings takes seconds of a core, too long for the broker's
process. So the command runs in a separate process with the lowest priority, one process at a time,
and gets the records that are in memory.
"""

import asyncio
import os
import shutil
import sys
from collections import OrderedDict
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from kohort.broker.groups_seen import RebalancesSeen
from kohort.broker.http.json_parts import ANSWER_BYTES
from kohort.broker.http.messages import JSON, HttpResponse

TIMEOUT_S: Final = 45.0
"""Timeout of ``kohort groups advise``, below that of requests (`HttpLimits.answer_timeout_s`)."""

OUTPUT_BYTES_MAX: Final = 1 << 20
REMEMBERED_MAX: Final = 20
"""Maximum number of groups whose advice is cached. Advice is valid until the group has a new
record."""

ERROR_CHARS_MAX: Final = 500


class AdviceError(Exception):
    """No advice could be computed; the text is the reason."""


class Advisor:
    """Computes advice for one group at a time, with a cache."""

    def __init__(self, history: RebalancesSeen) -> None:
        self._history = history
        self._known: OrderedDict[str, tuple[tuple[int, int], bytes]] = OrderedDict()
        self._lock = asyncio.Lock()

    async def wait_answer(self, group_id: str) -> HttpResponse:
        """Return the advice as JSON; status 503 while advice is computed for another request."""
        totals = self._history.totals(group_id)
        known = self._known.get(group_id)
        if known is None or known[0] != totals:
            if self._lock.locked():
                text = "advice is being computed for another request; try again in a few seconds"
                retry = ("Retry-After", "3")
                return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, text, retry)
            async with self._lock:
                try:
                    advice = await self._compute(group_id)
                except AdviceError as error:
                    return HttpResponse.error(HTTPStatus.BAD_GATEWAY, str(error))
            known = self._known[group_id] = (totals, advice)
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        return HttpResponse(HTTPStatus.OK, JSON, (known[1],))

    async def _compute(self, group_id: str) -> bytes:
        """Run ``kohort groups advise``. Raises AdviceError."""
        try:
            process = await asyncio.create_subprocess_exec(
                *_command(group_id),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_environment(),
                limit=OUTPUT_BYTES_MAX,
            )
        except (OSError, ValueError) as error:
            raise AdviceError(f"the advisor cannot be started: {error}") from error
        try:
            async with asyncio.timeout(TIMEOUT_S):
                output, errors = await process.communicate(self._records(group_id))
        except TimeoutError:
            raise AdviceError(f"the advisor took longer than {TIMEOUT_S:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode or len(output) > OUTPUT_BYTES_MAX:
            raise AdviceError(f"the advisor failed: {_text(errors) or 'without a message'}")
        return output

    def _records(self, group_id: str) -> bytes:
        """Return the newest records, one per line, oldest first; at most `ANSWER_BYTES`."""
        lines: list[bytes] = []
        size = 0
        for record in reversed(self._history.stored_records(group_id)):
            text = record.text
            size += len(text)
            if size > ANSWER_BYTES:
                break
            lines.append(text + b"\n")
        return b"".join(reversed(lines))


def _command(group_id: str) -> list[str]:
    nice = shutil.which("nice")
    prefix = [nice, "-n", "19"] if nice else []
    advise = ["-P", "-m", "kohort.cli", "groups", "advise", "--from", "-", "--json", "--", group_id]
    return [*prefix, sys.executable, *advise]


def _environment() -> Mapping[str, str]:
    """Return the broker's environment; PYTHONPATH is sys.path without the working directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _text(errors: bytes) -> str:
    text = errors.decode("utf-8", "replace").strip()
    return text[-ERROR_CHARS_MAX:]
