"""`python -m scripts.extra_requirements NAME...`: what these extras of Kohort need, a line each.

For `pip install -r`: Kohort itself is installed already, and pip would build and compile it once
more to give it an extra.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"
_OWN: Final = re.compile(r"kohort\[([\w,\s-]+)\]")


def requirements(names: Iterable[str], extras: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Include the requirements of extras that they name. Raises KeyError for an unknown extra."""
    for name in names:
        for one in extras[name]:
            own = _OWN.fullmatch(one)
            if own is None:
                yield one
            else:
                yield from requirements(map(str.strip, own[1].split(",")), extras)


def main() -> int:
    """Print them; returns the exit code."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    found = requirements(sys.argv[1:], project["optional-dependencies"])
    sys.stdout.write("".join(f"{one}\n" for one in dict.fromkeys(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
