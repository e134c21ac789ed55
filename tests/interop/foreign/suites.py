"""Other libraries' own tests, from the sources that their registries give out, made to come as a
user to a broker that asks who they are.

Their sources are copied to .cache/foreign, and a copy is changed there by as little as it takes: a
line that cannot be found any more is an error, so that a test never runs without what it is for.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.interop.foreign.programs import CACHE, HERE, tool

_KGO_TLS: Final = "\tif testCert != nil {\n\t\topts = append(opts, DialTLSConfig(testCert))\n\t}\n"
_KGO_SASL: Final = "\tif saslScram != nil {\n\t\topts = append(opts, SASL(saslScram))\n\t}\n"

_ASKS_VERSIONS: Final = "\tconfig.ApiVersionsRequest = true\n"
_USER: Final = """//go:build functional

package sarama

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

func comeAsUser(config *Config) {
	trusted, err := os.ReadFile(os.Getenv("SARAMA_AUTHORITY"))
	if err != nil {
		panic(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(trusted)
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: authorities}
	config.Net.SASL.Enable = true
	config.Net.SASL.User = os.Getenv("SARAMA_USER")
	config.Net.SASL.Password = os.Getenv("SARAMA_PASSWORD")
}
"""


def franz_go_tests() -> Path:
    """kgo's tests as a program all of whose clients come with KGO_TEST_SCRAM's name and password;
    as published, only two of its tests do.
    """
    go = tool("go", "Go")
    place = _module("github.com/twmb/franz-go")
    change(place / "pkg/kgo/helpers_test.go", _KGO_TLS, _KGO_TLS + _KGO_SASL)
    program = CACHE / "kgo-with-scram.test"
    subprocess.run([go, "test", "-c", "-o", program, "./pkg/kgo"], cwd=place, check=True)
    return program


def sarama_tests() -> tuple[Path, list[str]]:
    """sarama's tests of brokers as a program, and their names. All of its clients come by TLS as
    SARAMA_USER with SARAMA_PASSWORD to the one broker at SARAMA_BROKER; as published, they come
    without a name to five that Docker runs.
    """
    go = tool("go", "Go")
    place = _module("github.com/IBM/sarama")
    setting = place / "functional_test.go"
    change(setting, _ASKS_VERSIONS, f"{_ASKS_VERSIONS}\tcomeAsUser(config)\n")
    change(setting, 'fmt.Sprintf("127.0.0.1:%d", 29090+i)', 'os.Getenv("SARAMA_BROKER")')
    change(setting, "ReplicationFactor: 3,", "ReplicationFactor: 1,", times=5)
    (place / "functional_user_test.go").write_text(_USER)
    program = CACHE / "sarama-as-user.test"
    build: list[str | Path] = [go, "test", "-c", "-tags", "functional", "-o", program, "."]
    subprocess.run(build, cwd=place, check=True)
    texts = [file.read_text() for file in sorted(place.glob("functional_*_test.go"))]
    return program, [name for text in texts for name in re.findall(r"(?m)^func (Test\w+)", text)]


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


def change(file: Path, old: str, new: str, *, times: int = 1) -> None:
    """Puts something else in the place of what is there as often as that."""
    text = file.read_text()
    assert text.count(old) == times, f"{file.name} does not have this {times} times:\n{old}"
    file.write_text(text.replace(old, new))
