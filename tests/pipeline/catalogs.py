"""Catalogs and an object store that are none of ours, each in a process of its own."""

import importlib.util
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from tests.support.brokers.server_process import accepts, free_port
from tests.support.processes import java_env
from tests.support.waiting import wait_until

BUCKET = "lake"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
QUICK = ("-Xmx256M", *java_env.QUICK_START)
HIVE = Path(__file__).parents[1] / "java" / "hive" / "Metastore.java"


@contextmanager
def running(command: list[str], log: Path, answers: Callable[[], bool]) -> Iterator[None]:
    """A server, from when it answers."""
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        wait_until(
            lambda: answers() or server.poll() is not None,
            lambda: f"its answer: {log.read_text()}",
            timeout_s=120,
        )
        assert server.poll() is None, log.read_text()
        yield
    finally:
        server.kill()
        server.wait()


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=10).close()
    except OSError:
        return False
    return True


@contextmanager
def rest_catalog(directory: Path) -> Iterator[str]:
    """The one that Iceberg tests its own client with; its address."""
    java_env.fetch("iceberg")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [java_env.java(), *QUICK, "-cp", java_env.classpath("iceberg")]
    command += ["org.apache.iceberg.rest.CatalogServer", str(port), f"file://{directory}/warehouse"]
    with running(command, directory / "rest.log", lambda: answers(f"{address}/v1/config")):
        yield address


@contextmanager
def hive_metastore(directory: Path) -> Iterator[str]:
    """Hive's own, of the jars that Spark brings; its address."""
    import pyspark  # noqa: PLC0415 - slow to import.

    if shutil.which("javac") is None:
        java_env.missing("javac is not installed")
    port = free_port()
    jars = Path(pyspark.__file__).with_name("jars")
    command = [java_env.java(), *QUICK, "-cp", f"{jars}/*", str(HIVE), str(port), str(directory)]
    with running(command, directory / "hive.log", lambda: accepts(port)):
        yield f"thrift://127.0.0.1:{port}"


@contextmanager
def object_store(directory: Path) -> Iterator[str]:
    """Another implementation of S3, with one empty bucket, and of Glue; its address."""
    if importlib.util.find_spec("moto") is None:
        java_env.missing("moto is not installed: pip install '.[dev-long]'")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with running(command, directory / "store.log", lambda: has_bucket(address)):
        yield address


def on_object_store(store: str, directory: Path) -> dict[str, str]:
    """What PyIceberg has to know, for a catalog of SQL's with its tables in the bucket."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"s3://{BUCKET}/warehouse",
        "s3.endpoint": store,
        "s3.region": "us-east-1",
        "s3.access-key-id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }


def has_bucket(address: str) -> bool:
    request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def as_environment(catalog: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Variables by which PyIceberg is told of a catalog."""
    return {
        f"PYICEBERG_CATALOG__{catalog}__{name.replace('.', '__').replace('-', '_')}".upper(): value
        for name, value in settings.items()
    }
