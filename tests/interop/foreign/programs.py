"""Programs in other languages, built by their own tools under .cache/foreign when they are wanted.

What they need comes through the package managers of their languages, at the versions that are
written down beside them. Without its toolchain a test is skipped with the reason.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.processes import java_env

HERE: Final = Path(__file__).parent
CACHE: Final = java_env.ROOT / ".cache" / "foreign"


def tool(name: str, what: str) -> str:
    """The path of a toolchain's command."""
    return shutil.which(name) or java_env.missing(f"{what} is not installed")


def python_program(name: str) -> list[str]:
    """The command of `python/NAME.py`."""
    return [sys.executable, str(HERE / "python" / f"{name}.py")]


def spring_program(name: str) -> list[str]:
    """The command of `tests/java/spring/NAME.java`."""
    java_env.fetch("spring")
    return [*java_env.quick_jvm("spring", "-Xmx256M"), name]


def go_program(name: str) -> list[str]:
    """The command of the program in `go/NAME`."""
    go = tool("go", "Go")
    CACHE.mkdir(parents=True, exist_ok=True)
    program = CACHE / name
    subprocess.run([go, "build", "-o", program, f"./{name}"], cwd=HERE / "go", check=True)
    return [str(program)]


def node_program(name: str) -> list[str]:
    """The command of `node/NAME.js`, beside which its packages have been installed."""
    node, npm = tool("node", "Node.js"), tool("npm", "npm")
    place = CACHE / "node"
    place.mkdir(parents=True, exist_ok=True)
    for file in (HERE / "node").iterdir():
        shutil.copy(file, place)
    subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"],
        cwd=place,
        env=os.environ | {"npm_config_update_notifier": "false"},
        check=True,
    )
    return [node, str(place / f"{name}.js")]
