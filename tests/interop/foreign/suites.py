"""Other libraries' own tests, from the sources that their registries give out, made to come as a
user to a broker that asks who they are.

Their sources are copied to .cache/foreign, and a copy is changed there by as little as it takes: a
line that cannot be found any more is an error, so that a test never runs without what it is for.
"""

import json
import shutil
import subprocess
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.interop.foreign.programs import CACHE, HERE, tool

LIBRDKAFKA: Final = "2.8.0"
"""What the Debian release has from which its sources are."""

_SALT: Final = 'tsprintf("%s", "salt");'
_SALT_SIZE: Final = "size_t salt_size     = 4;"

_KGO_TLS: Final = "\tif testCert != nil {\n\t\topts = append(opts, DialTLSConfig(testCert))\n\t}\n"
_KGO_SASL: Final = "\tif saslScram != nil {\n\t\topts = append(opts, SASL(saslScram))\n\t}\n"


def franz_go_tests() -> Path:
    """kgo's tests as a program all of whose clients come with KGO_TEST_SCRAM's name and password;
    as published, only two of its tests do.
    """
    go = tool("go", "Go")
    place = _module("github.com/twmb/franz-go")
    _change(place / "pkg/kgo/helpers_test.go", _KGO_TLS, _KGO_TLS + _KGO_SASL)
    program = CACHE / "kgo-with-scram.test"
    subprocess.run([go, "test", "-c", "-o", program, "./pkg/kgo"], cwd=place, check=True)
    return program


def _module(name: str) -> Path:
    """A copy of the sources of one of the modules in `go/go.mod`."""
    go = tool("go", "Go")
    found = subprocess.run(
        [go, "mod", "download", "-json", name], cwd=HERE / "go", check=True, capture_output=True
    )
    source = Path(json.loads(found.stdout)["Dir"])
    place = CACHE / "sources" / source.name
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place, copy_function=shutil.copyfile)
    for directory in (place, *(path for path in place.rglob("*") if path.is_dir())):
        directory.chmod(0o755)
    return place


def _change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file.name} does not have this once:\n{old}"
    file.write_text(text.replace(old, new))


def librdkafka_tests() -> Path:
    """The directory of librdkafka's tests, with their program, built from Debian's sources."""
    sources = CACHE / "sources"
    place = sources / f"librdkafka-{LIBRDKAFKA}"
    if not (place / "tests" / "test-runner").exists():
        shutil.rmtree(place, ignore_errors=True)
        _debian_sources("librdkafka", "trixie", sources)
        with tarfile.open(sources / f"librdkafka_{LIBRDKAFKA}.orig.tar.gz") as packed:
            packed.extractall(sources, filter="data")
        # Ours takes no salt that is shorter.
        _change(place / "tests" / "0081-admin.c", _SALT, _SALT.replace("salt", "longsalt"))
        _change(place / "tests" / "0081-admin.c", _SALT_SIZE, _SALT_SIZE.replace("4", "8"))
        # There is one broker.
        _change(place / "tests" / "0142-reauthentication.c", "topic, 1, 3,", "topic, 1, 1,")
        # Optimised it takes three times as long.
        plain = ["./configure", "--disable-optimization", "--disable-gssapi", "--disable-lz4-ext"]
        make = [tool("make", "make"), "-j2"]
        parts = ["src", "librdkafka.a"], ["src-cpp", "librdkafka++.a"], ["tests", "build"]
        for command in (plain, *([*make, "-C", *part] for part in parts)):
            subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)
    return place / "tests"


def _debian_sources(package: str, release: str, place: Path) -> None:
    """Downloads them from where this machine has its packages from."""
    apt = tool("apt-get", "apt-get")
    known = ["Created-By: Packages", "Origin: Debian", "Component: main"]
    targets = subprocess.run(
        [apt, "indextargets", "--format", "$(REPO_URI)", *known],
        check=True,
        capture_output=True,
        text=True,
    )
    where = next(line for line in targets.stdout.splitlines() if line.endswith("/debian/"))
    (place / "apt" / "partial").mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (place / "apt.list").write_text(f"deb-src [signed-by={keys}] {where} {release} main\n")
    options = {
        "Dir::Etc::sourcelist": place / "apt.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": place / "apt",
    }
    ours = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    subprocess.run([apt, *ours, "--quiet", "update"], check=True)
    subprocess.run([apt, *ours, "source", "--download-only", package], cwd=place, check=True)


def kafka_python_tests() -> Path:
    """The directory of kafka-python's sources, with what they leave out of its tests."""
    place = _sources("kafka-python")
    # Else it is Python's own package of that name.
    (place / "test" / "__init__.py").touch()
    # Starts Kafkas, of which none is to be started.
    (place / "test" / "service.py").write_text("ExternalService = SpawnedService = None\n")
    return place


def _sources(package: str) -> Path:
    """The unpacked sources of a package for Python, of the version that is installed."""
    exact = f"{package}=={version(package)}"
    place = CACHE / "sources" / exact
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    subprocess.run(
        [
            *(tool("pip", "pip"), "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-binary", package, "--dest", place, exact),
        ],
        check=True,
    )
    (archive,) = place.iterdir()
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
    (unpacked,) = (path for path in place.iterdir() if path.is_dir())
    return unpacked
