"""``kohort pipeline py-files``: what executors need that have no Kohort, for `spark-submit`.

Spark puts archives on the path of Python's workers as they are, so what is in one has to be plain
Python: the sources of Kohort, and those of the one package that the replay of a history imports.
pandas and pyarrow are compiled, and have to be where the executors are.
"""

import argparse
import importlib.util
import zipfile
from pathlib import Path
from typing import Final

from kohort.insight.console import announce
from kohort.insight.counting import counted
from kohort.insight.errors import UsageError

PACKAGES: Final = ("kohort", "construct")
COMPILED: Final = {".c", ".pxd", ".pxi", ".pyc", ".so"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", type=Path, metavar="FILE.zip", help="what is to be written")


def run(options: argparse.Namespace) -> int:
    """Prints the path, for `spark-submit --py-files`. Raises ReportedError."""
    archive: Path = options.archive
    # Spark silently ignores archives with other names.
    if archive.suffix != ".zip":
        raise UsageError(f"{archive}: Spark takes an archive whose name ends in .zip")
    try:
        count = write(archive)
    except OSError as error:
        raise UsageError(f"{archive}: {error.strerror}") from error
    announce(f"{counted(count, 'module')} of {' and '.join(PACKAGES)}")
    print(archive)
    return 0


def write(archive: Path) -> int:
    """Write it; returns how many modules are in it."""
    count = 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as output:
        for name in PACKAGES:
            root = _place(name)
            for path in sorted(root.rglob("*")):
                # The driver finds this archive before what it has installed: the report's style,
                # and whatever else lies beside modules, is to be there as well.
                if path.suffix not in COMPILED and path.is_file():
                    output.write(path, path.relative_to(root.parent))
                    count += path.suffix == ".py"
    return count


def _place(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return Path(spec.origin).parent
