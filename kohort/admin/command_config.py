"""`--command-config FILE`: TLS and SASL settings in the format of Kafka's own tools.

The file is one that `kafka-consumer-groups.sh --command-config` takes. Certificates and keys are
read from PEM files (KIP-651), not from Java's keystores. Unknown settings are ignored, as Kafka
does, except those about security: to ignore one of them could make the connection less secure than
intended, so they are rejected.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kohort.client.net.oauth import SETTING, TokenProvider
from kohort.client.net.sasl import MECHANISMS, OAUTHBEARER
from kohort.client.net.security import PROTOCOLS, SecurityConfig
from kohort.client.net.tls_files import CADATA, CAFILE, CERTFILE, PASSWORD, TlsFilesError
from kohort.formats.jaas import JaasError, parse_login_module
from kohort.formats.properties import parse_properties

FILE_BYTES_MAX: Final = 1 << 20

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
TRUST_TYPE: Final = "ssl.truststore.type"
TRUST: Final = "ssl.truststore.location"
TRUSTED: Final = "ssl.truststore.certificates"
KEY_TYPE: Final = "ssl.keystore.type"
KEY: Final = "ssl.keystore.location"
KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105 - the name of a setting.
HOST_NAMES: Final = "ssl.endpoint.identification.algorithm"

KNOWN: Final = (
    PROTOCOL,
    MECHANISM,
    JAAS,
    TRUST_TYPE,
    TRUST,
    TRUSTED,
    KEY_TYPE,
    KEY,
    KEY_PASSWORD,
    HOST_NAMES,
)
_OF_TOKENS: Final = ("sasl.oauthbearer.", "sasl.login.")
"""Prefixes of settings that apply to OAUTHBEARER only."""
_SUBJECTS: Final = ("security.", "sasl.", "ssl.")
_ESCAPE: Final = "\\"
_JAVA_DEFAULT: Final = "JKS"

_FILES: Final = {CAFILE: TRUST, CADATA: TRUSTED, CERTFILE: KEY, PASSWORD: KEY_PASSWORD}
"""Names of settings in the file, by the client's names of the same settings."""

_WORDS: Final = (
    (f"{SETTING} raised TokenFetchError: ", ""),
    (SETTING, "sasl.oauthbearer.token.endpoint.url"),
    ("sasl_plain_username and sasl_plain_password", f"username and password in {JAAS}"),
    ("the versions and ciphers of ssl_context", "the versions and ciphers of this Python"),
    ("into ssl_context (load_cert_chain), or name it as ssl_certfile", f"into {KEY}"),
    ("ssl_context, or ssl_cafile, must", f"{TRUST} must"),
    ("ssl_context", TRUST),
    ("security_protocol", PROTOCOL),
    ("sasl_mechanism", MECHANISM),
)
"""Terms in the client's errors and their replacements in the file's terms; longer terms first."""

_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")


class SettingError(Exception):
    """A file or a setting is invalid; the text is for the user, and contains no password."""


class Login(NamedTuple):
    """A user name and its password, which is left out of the repr."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.username!r})"


def read_command_config(path: str) -> SecurityConfig:
    """Read the security settings of a file.

    Raises:
        SettingError: the file cannot be read, or is invalid; the text names the line.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(f"--command-config: {path!r} cannot be read: {reason}") from error
    if len(data) > FILE_BYTES_MAX:
        raise SettingError(f"--command-config: {path!r} is too long for a properties file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingError(f"{path}, line {line}: this is not text in UTF-8") from error
    return _Settings(path, text).security()


def security_of(settings: Mapping[str, str], place: str) -> SecurityConfig:
    """Return the security settings among a client's settings; `place` names their source in errors.

    Raises:
        SettingError: a setting is invalid, or not known.
    """
    lines = [
        f"{name}={value.replace(_ESCAPE, 2 * _ESCAPE)}\n"
        for name, value in settings.items()
        if name.startswith(_SUBJECTS)
    ]
    return _Settings(place, "".join(lines)).security()


def in_file_words(text: str) -> str:
    """Replace the client's names of settings in an error by the names in the file."""
    for ours, kafkas in _WORDS:
        text = text.replace(ours, kafkas)
    return text


def parse_jaas(text: str) -> Login:
    """Parse `sasl.jaas.config` of a client.

    That is `org...PlainLoginModule required username="u" password="p";`, or ScramLoginModule.

    Raises:
        JaasError: `text` is neither.
    """
    module, options = parse_login_module(text, _LOGIN_MODULES)
    for name in options:
        if name not in Login._fields:
            raise JaasError(f"of {module} only username and password are supported")
    for name in Login._fields:
        if not options.get(name):
            raise JaasError(f'it must contain {name}="..."')
    return Login(**options)


class _Settings:
    """The properties of a file; if a name is repeated, the last value wins, as in Java."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._properties = {entry.name: entry for entry in parse_properties(text)}

    def security(self) -> SecurityConfig:
        protocol = self._protocol()
        uses_tls, uses_sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
        self._check_types()
        for name in self._properties:
            if name.startswith(_SUBJECTS):
                self._check(name, protocol, uses_tls=uses_tls, uses_sasl=uses_sasl)
        settings: dict[str, Any] = {"security_protocol": protocol}
        if uses_tls:
            settings |= self._tls_files()
        if self._value(MECHANISM) == OAUTHBEARER:
            settings["sasl_mechanism"] = OAUTHBEARER
            settings["sasl_oauth_token_provider"] = self._token_provider()
        elif uses_sasl:
            login = self._login(protocol)
            settings["sasl_mechanism"] = self._mechanism(protocol)
            settings["sasl_plain_username"] = login.username
            settings["sasl_plain_password"] = login.password
        try:
            return SecurityConfig(**settings)
        except TlsFilesError as error:
            name = _FILES[error.setting]
            text = error.why
            for ours, kafkas in _FILES.items():
                text = text.replace(ours, kafkas)
            separator = " " if text.startswith("is set") else ": "
            raise self._wrong(name, f"{name}{separator}{text}") from error

    def _value(self, name: str) -> str | None:
        entry = self._properties.get(name)
        return None if entry is None else entry.value

    def _wrong(self, name: str, reason: str) -> SettingError:
        """Return an error that names the line of a setting in the file."""
        return SettingError(f"{self._path}, line {self._properties[name].line}: {reason}")

    def _check(self, name: str, protocol: str, *, uses_tls: bool, uses_sasl: bool) -> None:
        uses_tokens = uses_sasl and self._value(MECHANISM) == OAUTHBEARER
        if name.startswith(_OF_TOKENS) and not uses_tokens:
            raise self._wrong(
                name, f"{name} applies to {MECHANISM}={OAUTHBEARER} only; one of the two is wrong"
            )
        known = self._known(uses_tokens=uses_tokens)
        if name not in known:
            raise self._wrong(
                name, f"{name} is not known here; the security settings are {_listed(known)}"
            )
        if not self._properties[name].value and name != HOST_NAMES:
            raise self._wrong(name, f"{name} is empty")
        is_used = {"ssl": uses_tls, "sasl": uses_sasl}.get(name.partition(".")[0], True)
        if not is_used:
            raise self._wrong(
                name, f"{name} does not apply to {PROTOCOL}={protocol}; one of the two is wrong"
            )

    def _protocol(self) -> str:
        given = self._value(PROTOCOL)
        if given is None:
            return "PLAINTEXT"
        if given.upper() not in PROTOCOLS:
            raise self._wrong(
                PROTOCOL, f"{PROTOCOL}: {given!r} is not one of {', '.join(PROTOCOLS)}"
            )
        return given.upper()

    def _mechanism(self, protocol: str) -> str:
        given = self._value(MECHANISM)
        if given is None:
            raise self._wrong(
                PROTOCOL,
                f"{PROTOCOL}={protocol} needs {MECHANISM}, one of {', '.join(MECHANISMS)}; Kafka's"
                " default, GSSAPI, is not supported",
            )
        if given not in MECHANISMS:
            raise self._wrong(
                MECHANISM, f"{MECHANISM}: {given!r} is not one of {', '.join(MECHANISMS)}"
            )
        return given

    @staticmethod
    def _known(*, uses_tokens: bool) -> tuple[str, ...]:
        if not uses_tokens:
            return KNOWN
        # Imported only if the file uses OAUTHBEARER, because the import is slow.
        from kohort.admin import oauth_config  # noqa: PLC0415

        return (*KNOWN, *oauth_config.KNOWN)

    def _token_provider(self) -> TokenProvider:
        from kohort.admin.oauth_config import OAuthConfigError, token_provider  # noqa: PLC0415

        try:
            return token_provider({entry.name: entry.value for entry in self._properties.values()})
        except OAuthConfigError as error:
            name = error.setting if error.setting in self._properties else MECHANISM
            raise self._wrong(name, str(error)) from None

    def _login(self, protocol: str) -> Login:
        given = self._value(JAAS)
        if given is None:
            raise self._wrong(PROTOCOL, f"{PROTOCOL}={protocol} needs {JAAS}")
        try:
            login = parse_jaas(given)
        except JaasError as error:
            raise self._wrong(JAAS, f"{JAAS}: {error}") from None
        if "\0" in login.username + login.password:
            raise self._wrong(JAAS, f"{JAAS}: names and passwords cannot contain a NUL")
        return login

    def _check_types(self) -> None:
        """Reject stores that are not PEM. Without a type a store is JKS, as in Kafka."""
        for kind, name in ((TRUST_TYPE, TRUST), (KEY_TYPE, KEY)):
            given = self._value(kind)
            if given is None and name not in self._properties:
                continue
            if (given or _JAVA_DEFAULT).upper() != "PEM":
                raise self._wrong(
                    name if given is None else kind,
                    f"{kind} is {given or _JAVA_DEFAULT}{'' if given else ' by default'}; only PEM"
                    f" can be read here: set {name} to a PEM file, and {kind}=PEM",
                )

    def _tls_files(self) -> dict[str, Any]:
        """Return the TLS settings under the client's names; SecurityConfig checks the files."""
        algorithm = self._value(HOST_NAMES)
        if algorithm is not None and algorithm.lower() not in {"", "https"}:
            raise self._wrong(
                HOST_NAMES, f"{HOST_NAMES} is https, or empty to accept any host name"
            )
        files = {ours: self._value(kafkas) for ours, kafkas in _FILES.items()}
        return files | {"ssl_check_hostname": algorithm != ""}


def _listed(known: tuple[str, ...]) -> str:
    return f"{', '.join(known[:-1])} and {known[-1]}"
