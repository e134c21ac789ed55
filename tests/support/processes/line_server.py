"""The other end of a `LineProcess` that is written in Python."""

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the commands of the input, until it ends."""
    for line in sys.stdin:
        print(json.dumps(_attempt(answer, json.loads(line))), flush=True)


def _attempt(
    answer: Callable[[dict[str, Any]], dict[str, Any]], command: dict[str, Any]
) -> dict[str, Any]:
    try:
        return answer(command)
    except Exception as problem:  # noqa: BLE001  Raised again by the test.
        return {
            "error": type(problem).__name__,
            "message": str(problem),
            "trace": traceback.format_exc(),
        }
