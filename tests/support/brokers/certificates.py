"""Certificates for one test run, made by the openssl command and thrown away afterwards."""

import shutil
import subprocess
from pathlib import Path

from tests.support.processes import java_env

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
"""Made in a moment, and what a broker should have."""


class Authority:
    """A certificate authority of one's own under `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.certificate = directory / "ca.pem"
        self._key = directory / "ca.key"
        self._openssl = shutil.which("openssl") or java_env.missing("openssl is not installed")
        self._run(
            *("req", "-x509", *NEW_KEY, "-noenc", "-days", "2"),
            *("-subj", "/CN=authority of the tests"),
            # Python 3.13 and later want it.
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def issue(self, name: str, alternatives: str) -> Path:
        """A file with a private key and its certificate, which is good for `alternatives`, such as
        "DNS:localhost,IP:127.0.0.1".
        """
        key, request, signed = (self.directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(
            f"subjectAltName={alternatives}\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        self._run(
            *("req", *NEW_KEY, "-noenc", "-subj", f"/CN={name}"),
            *("-keyout", str(key), "-out", str(request)),
        )
        self._run(
            *("x509", "-req", "-in", str(request), "-days", "2", "-extfile", str(extensions)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-out", str(signed)),
        )
        both = self.directory / f"{name}.pem"
        both.write_text(key.read_text() + signed.read_text())
        return both

    def issue_store(self, name: str, alternatives: str, password: str) -> Path:
        """The same as a PKCS12 store, for Java."""
        both, store = self.issue(name, alternatives), self.directory / f"{name}.p12"
        self._run(
            *("pkcs12", "-export", "-in", str(both), "-out", str(store)),
            *("-name", name, "-passout", f"pass:{password}"),
        )
        return store

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._openssl, *arguments], check=True, capture_output=True)
