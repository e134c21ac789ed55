"""Downloads the jars that Spark does not include, and verifies them.

`jars.lock` has coordinates, sizes and SHA-256, `jars-s3.lock` those of the jars for lakes under
s3a://. A line that ends with releases of Spark, such as 4.2, applies to these only. Ivy, which is
one of Spark's own jars, downloads them; it supports the usual settings, mirrors and proxies. A jar
gets its name only after verification, so a jar that exists is complete and correct.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark

from kohort.formats.text import counted
from kohort.insight.output import announce
from kohort.pipeline.errors import UnavailableError
from kohort.pipeline.java import find_java

DIRECTORY: Final = "KOHORT_JARS"
"""Environment variable: directory of the jars."""

IVY_SETTINGS: Final = "KOHORT_IVY_SETTINGS"
"""Environment variable: an ivysettings.xml, for downloads through a mirror."""

_TIMEOUT_S: Final = 600
LOCK: Final = Path(__file__).with_name("jars.lock")
LOCK_S3: Final = Path(__file__).with_name("jars-s3.lock")
_HADOOP_S3: Final = "hadoop-aws"
"""The first jar of `jars-s3.lock`; it must have the version of Spark's own Hadoop."""


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def is_at(self, path: Path) -> bool:
        try:
            return path.stat().st_size == self.size and _sha256(path) == self.sha256
        except FileNotFoundError:
            return False


def locked(lock: Path = LOCK, spark: str = pyspark.__version__) -> list[Jar]:
    release = ".".join(spark.split(".")[:2])
    jars = []
    for line in lock.read_text().splitlines():
        if line and not line.startswith("#"):
            coordinates, size, sha256, *releases = line.split()
            group, artifact, version = coordinates.split(":")
            if not releases or release in releases:
                jars.append(Jar(group, artifact, version, int(size), sha256))
    return jars


def default_directory() -> Path:
    if given := os.environ.get(DIRECTORY):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "kohort" / "jars"


def ensure(directory: Path | None = None, *, with_s3: bool = False) -> list[Path]:
    """Return the paths of all jars; missing or damaged ones are downloaded.

    With `with_s3`, include the jars for lakes under s3a://.

    Raises:
        UnavailableError: a jar cannot be downloaded, has another hash, or is not listed.
    """
    place = (directory or default_directory()).absolute()
    wanted = locked()
    if with_s3:
        if (of_s3 := locked(LOCK_S3))[0].artifact != _HADOOP_S3:
            raise UnavailableError(
                f"there are no jars for lakes under s3a:// with Spark {pyspark.__version__}: use "
                "Spark 4.2, or spark-submit with a Spark that has them"
            )
        wanted += of_s3
    missing = [jar for jar in wanted if not jar.is_at(place / jar.file_name)]
    if missing:
        _fetch(missing, place)
    return [place / jar.file_name for jar in wanted]


def _fetch(missing: Sequence[Jar], place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    total = sum(jar.size for jar in missing)
    announce(f"downloading {counted(len(missing), 'jar')} ({total / 1e6:.0f} MB) into {place}")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=place) as scratch:
        downloads = Path(scratch, "arrived")
        downloads.mkdir()
        remaining = _copy_from_maven(missing, downloads)
        output = _run_ivy(remaining, Path(scratch), downloads) if remaining else ""
        for jar in missing:
            path = downloads / jar.file_name
            if not path.exists():
                raise UnavailableError(_advice(jar, output))
            if not jar.is_at(path):
                raise UnavailableError(
                    f"{jar.file_name} is not the expected file: it has {path.stat().st_size} "
                    f"bytes and the SHA-256 {_sha256(path)}, not {jar.size} and {jar.sha256}. "
                    "The server has a different file."
                )
            path.replace(place / jar.file_name)
    announce("all jars are present")


def _copy_from_maven(missing: Sequence[Jar], downloads: Path) -> list[Jar]:
    """Copy jars from Maven's local repository; return those that it lacks."""
    repository = Path.home() / ".m2" / "repository"
    remaining = []
    for jar in missing:
        path = repository.joinpath(*jar.group.split("."), jar.artifact, jar.version, jar.file_name)
        if jar.is_at(path):
            shutil.copyfile(path, downloads / jar.file_name)
        else:
            remaining.append(jar)
    return remaining


def _run_ivy(missing: Sequence[Jar], scratch: Path, downloads: Path) -> str:
    """Download the jars with Ivy; return its output."""
    module = scratch / "ivy.xml"
    module.write_text(_ivy_module(missing))
    command = [
        find_java(),
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *(["-settings", given] if (given := os.environ.get(IVY_SETTINGS)) else []),
        "-cache",
        str(scratch / "cache"),
        "-ivy",
        str(module),
        "-retrieve",
        f"{downloads}/[artifact]-[revision].[ext]",
    ]
    try:
        result = subprocess.run(  # noqa: S603 - Java and Spark's own Ivy, with the lock's content.
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"the jars were not downloaded within {_TIMEOUT_S} s") from error
    return result.stdout.decode(errors="replace")


def _ivy_module(missing: Sequence[Jar]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)}"
        f' rev={quoteattr(jar.version)} transitive="false"/>\n'
        for jar in missing
    )
    return (
        '<ivy-module version="2.0"><info organisation="kohort" module="jars"/>'
        '<configurations><conf name="default"/></configurations>\n'
        f'<dependencies defaultconf="default->master(default)">\n{dependencies}</dependencies>'
        "</ivy-module>"
    )


def _ivy_jar() -> Path:
    ivy_jars = sorted(Path(pyspark.__file__).with_name("jars").glob("ivy-*.jar"))
    if not ivy_jars:
        raise UnavailableError("this Spark's jars do not include Ivy; see docs/pipeline.md")
    return ivy_jars[-1]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _advice(jar: Jar, output: str) -> str:
    hints = [line.strip() for line in output.splitlines() if "ERROR" in line or "timed out" in line]
    return (
        f"{jar.group}:{jar.artifact}:{jar.version} could not be downloaded. {' '.join(hints[:3])}\n"
        f"Behind a mirror, {IVY_SETTINGS} names an ivysettings.xml; jars downloaded "
        f"elsewhere can be placed in the directory {DIRECTORY}."
    )
