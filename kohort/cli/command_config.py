"""`--command-config FILE`: how to get into a cluster, in the words of Kafka's own tools.

The file is one that `kafka-consumer-groups.sh --command-config` takes. Certificates and keys are
read from PEM files (KIP-651); Java's keystores cannot be. Settings that are not about security are
passed over, as Kafka passes over what it does not need. One that is about security and not known
here is refused: to leave it out could be less secure than what was asked for.
"""

from pathlib import Path
from typing import Any, Final

from kohort.cli.errors import UsageError
from kohort.cli.jaas import JaasError, Login, parse_jaas
from kohort.client.net.oauth import SETTING, TokenProvider
from kohort.client.net.sasl import MECHANISMS, OAUTHBEARER
from kohort.client.net.security import PROTOCOLS, SecurityConfig
from kohort.client.net.tls_files import CADATA, CAFILE, CERTFILE, PASSWORD, TlsFilesError
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
KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105 - the name of one.
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
"""What settings begin with that have a meaning with OAUTHBEARER alone."""
_SUBJECTS: Final = ("security.", "sasl.", "ssl.")
_JAVA_DEFAULT: Final = "JKS"

_FILES: Final = {CAFILE: TRUST, CADATA: TRUSTED, CERTFILE: KEY, PASSWORD: KEY_PASSWORD}
"""The client's settings of files, by what they are called here."""

_WORDS: Final = (
    (f"{SETTING} has raised TokenFetchError: ", ""),
    (SETTING, "sasl.oauthbearer.token.endpoint.url"),
    ("sasl_plain_username and sasl_plain_password", f"username and password in {JAAS}"),
    ("the versions and ciphers of ssl_context", "the versions and ciphers of this Python"),
    ("into ssl_context (load_cert_chain), or name it as ssl_certfile", f"into {KEY}"),
    ("ssl_context, or ssl_cafile, has", f"{TRUST} has"),
    ("ssl_context", TRUST),
    ("security_protocol", PROTOCOL),
    ("sasl_mechanism", MECHANISM),
)
"""What the client's errors call a setting, and what it is called in a file; longer ones first."""


def read_command_config(path: str) -> SecurityConfig:
    """What the file says about security.

    Raises:
        UsageError: it cannot be read, or cannot be meant; the text has the line, and no password.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--command-config: {path!r} cannot be read: {reason}") from error
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"--command-config: {path!r} is no properties file: it is too long")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: this is not text in UTF-8") from error
    return _Settings(path, text).security()


def in_file_words(text: str) -> str:
    """What the client says about its settings, with the names that they have in a file."""
    for ours, kafkas in _WORDS:
        text = text.replace(ours, kafkas)
    return text


class _Settings:
    """The properties of one file; where a name comes twice, the last one counts, as in Java."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._found = {one.name: one for one in parse_properties(text)}

    def security(self) -> SecurityConfig:
        """Raises UsageError."""
        protocol = self._protocol()
        uses_tls, uses_sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
        self._check_types()
        for name in self._found:
            if name.startswith(_SUBJECTS):
                self._check(name, protocol, uses_tls=uses_tls, uses_sasl=uses_sasl)
        found: dict[str, Any] = {"security_protocol": protocol}
        if uses_tls:
            found |= self._tls_files()
        if self._value(MECHANISM) == OAUTHBEARER:
            found["sasl_mechanism"] = OAUTHBEARER
            found["sasl_oauth_token_provider"] = self._token_provider()
        elif uses_sasl:
            login = self._login(protocol)
            found["sasl_mechanism"] = self._mechanism(protocol)
            found["sasl_plain_username"] = login.username
            found["sasl_plain_password"] = login.password
        try:
            return SecurityConfig(**found)
        except TlsFilesError as error:
            name = _FILES[error.setting]
            text = error.why
            for ours, kafkas in _FILES.items():
                text = text.replace(ours, kafkas)
            separator = " " if text.startswith("is given") else ": "
            raise self._wrong(name, f"{name}{separator}{text}") from error

    def _value(self, name: str) -> str | None:
        found = self._found.get(name)
        return None if found is None else found.value

    def _wrong(self, name: str, what: str) -> UsageError:
        """An error at the line of a setting, which is there."""
        return UsageError(f"{self._path}, line {self._found[name].line}: {what}")

    def _check(self, name: str, protocol: str, *, uses_tls: bool, uses_sasl: bool) -> None:
        uses_tokens = uses_sasl and self._value(MECHANISM) == OAUTHBEARER
        if name.startswith(_OF_TOKENS) and not uses_tokens:
            raise self._wrong(
                name, f"{name} has a meaning with {MECHANISM}={OAUTHBEARER} alone; which is wrong?"
            )
        known = self._known(uses_tokens=uses_tokens)
        if name not in known:
            raise self._wrong(
                name, f"{name} is not known here; of security there are {_listed(known)}"
            )
        if not self._found[name].value and name != HOST_NAMES:
            raise self._wrong(name, f"{name} is empty")
        is_used = {"ssl": uses_tls, "sasl": uses_sasl}.get(name.partition(".")[0], True)
        if not is_used:
            raise self._wrong(
                name, f"{name} has no meaning while {PROTOCOL} is {protocol}; which one is wrong?"
            )

    def _protocol(self) -> str:
        given = self._value(PROTOCOL)
        if given is None:
            return "PLAINTEXT"
        if given.upper() not in PROTOCOLS:
            raise self._wrong(PROTOCOL, f"{PROTOCOL}: {given!r} is none of {', '.join(PROTOCOLS)}")
        return given.upper()

    def _mechanism(self, protocol: str) -> str:
        given = self._value(MECHANISM)
        if given is None:
            raise self._wrong(
                PROTOCOL,
                f"{PROTOCOL}={protocol} needs {MECHANISM}, one of {', '.join(MECHANISMS)}; Kafka's"
                " default, GSSAPI, is not known here",
            )
        if given not in MECHANISMS:
            raise self._wrong(
                MECHANISM, f"{MECHANISM}: {given!r} is none of {', '.join(MECHANISMS)}"
            )
        return given

    @staticmethod
    def _known(*, uses_tokens: bool) -> tuple[str, ...]:
        if not uses_tokens:
            return KNOWN
        # Files without tokens do not pay for importing what fetches them.
        from kohort.cli import oauth_config  # noqa: PLC0415

        return (*KNOWN, *oauth_config.KNOWN)

    def _token_provider(self) -> TokenProvider:
        from kohort.cli.oauth_config import OAuthConfigError, token_provider  # noqa: PLC0415

        try:
            return token_provider({one.name: one.value for one in self._found.values()})
        except OAuthConfigError as error:
            name = error.setting if error.setting in self._found else MECHANISM
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
            raise self._wrong(JAAS, f"{JAAS}: names and passwords cannot have a NUL in them")
        return login

    def _check_types(self) -> None:
        """Checks the types of stores; Kafka takes one without a stated type for one of Java's."""
        for kind, name in ((TRUST_TYPE, TRUST), (KEY_TYPE, KEY)):
            given = self._value(kind)
            if given is None and name not in self._found:
                continue
            if (given or _JAVA_DEFAULT).upper() != "PEM":
                raise self._wrong(
                    name if given is None else kind,
                    f"{kind} is {given or _JAVA_DEFAULT}{'' if given else ' by default'}; only PEM"
                    f" can be read here: have {name} name a PEM file, and say {kind}=PEM",
                )

    def _tls_files(self) -> dict[str, Any]:
        """The settings of TLS under the client's names; what they name is checked there."""
        algorithm = self._value(HOST_NAMES)
        if algorithm is not None and algorithm.lower() not in {"", "https"}:
            raise self._wrong(HOST_NAMES, f"{HOST_NAMES} is https, or nothing to check no names")
        found = {ours: self._value(kafkas) for ours, kafkas in _FILES.items()}
        return found | {"ssl_check_hostname": algorithm != ""}


def _listed(known: tuple[str, ...]) -> str:
    return f"{', '.join(known[:-1])} and {known[-1]}"
