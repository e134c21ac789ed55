"""``kohort pipeline py-files``: writes an archive of Kohort for executors, for `spark-submit`.

Spark adds archives to the import path of Python workers without unpacking them, so an archive can
only contain plain Python: Kohort, and the one package that the replay of a history imports. pandas
and pyarrow are compiled, and have to be installed on the executors.
"""

import argparse
import importlib.util
import zipfile
from pathlib import Path
from typing import Final

from kohort.formats.text import counted
from kohort.insight.errors import UsageError
from kohort.insight.output import announce

PACKAGES: Final = ("kohort", "construct")
COMPILED: Final = {".c", ".pxd", ".pxi", ".pyc", ".so"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", type=Path, metavar="FILE.zip", help="the archive to write")


def run(options: argparse.Namespace) -> int:
    """Print the path of the archive, for `spark-submit --py-files`. Raises ReportedError."""
    archive: Path = options.archive
    # Spark silently ignores archives with other names.
    if archive.suffix != ".zip":
        raise UsageError(f"{archive}: Spark needs an archive whose name ends in .zip")
    try:
        count = write(archive)
    except OSError as error:
        raise UsageError(f"{archive}: {error.strerror}") from error
    announce(f"{counted(count, 'module')} of {' and '.join(PACKAGES)}")
    print(archive)
    return 0


def write(archive: Path) -> int:
    """Write the archive; return the number of modules in it."""
    count = 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as output:
        for name in PACKAGES:
            root = _directory(name)
            for path in sorted(root.rglob("*")):
                # The driver imports Kohort from this archive too, so include data files.
                if path.suffix not in COMPILED and path.is_file():
                    output.write(path, path.relative_to(root.parent))
                    count += path.suffix == ".py"
    return count


def _directory(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return Path(spec.origin).parent
