"""Files for `--command-config` are read as Kafka's tools read them, or refused with the line."""

import base64
from pathlib import Path

import pytest

from kohort import ClientCredentials
from kohort.admin.command_config import (
    Login,
    SettingError,
    in_file_words,
    parse_jaas,
    read_command_config,
    security_of,
)
from kohort.client.core.errors import TokenError
from kohort.client.net.security import TLS_HINT, SecurityConfig
from kohort.formats.jaas import JaasError
from tests.support.brokers.certificates import Authority
from tests.support.processes.token_endpoint import Asked, TokenEndpoint

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = f'{PLAIN} required username="u" password="p";'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def read(tmp_path: Path, *lines: str) -> SecurityConfig:
    path = tmp_path / "client.properties"
    path.write_text("\n".join(lines) + "\n")
    return read_command_config(str(path))


def refusal(tmp_path: Path, *lines: str) -> str:
    """What is said about a file, without its folder."""
    with pytest.raises(SettingError) as refused:
        read(tmp_path, *lines)
    return str(refused.value).replace(f"{tmp_path}/", "")


def test_a_file_about_other_things_leaves_the_connection_plain(tmp_path: Path) -> None:
    found = read(tmp_path, "# for the tools", "client.id = tool", "request.timeout.ms: 5000")
    assert found == SecurityConfig()


def test_a_file_of_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"\xef\xbb\xbfsecurity.protocol=SSL\r\n")
    assert read_command_config(str(path)).security_protocol == "SSL"


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
def test_sasl_is_read_as_kafkas_tools_write_it(tmp_path: Path, mechanism: str, module: str) -> None:
    found = read(
        tmp_path,
        "security.protocol=sasl_plaintext",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config={module} required \\",
        '    username="alice" \\',
        '    password="alice\'s secret = 100%";',
    )
    assert (found.security_protocol, found.sasl_mechanism) == ("SASL_PLAINTEXT", mechanism)
    assert found.sasl_plain_username == "alice"
    assert found.sasl_plain_password == "alice's secret = 100%"
    assert found.ssl_context is None


def test_authorities_and_the_own_certificate_come_from_pem_files(
    tmp_path: Path, authority: Authority
) -> None:
    found = read(
        tmp_path,
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority.certificate}",
        "ssl.keystore.type=pem",
        f"ssl.keystore.location={authority.issue('client', 'DNS:client')}",
    )
    assert found.tls_context is not None
    # By their names, so that a command that goes on for long has renewed ones.
    assert found.ssl_cafile == str(authority.certificate)
    assert found.ssl_certfile == str(authority.directory / "client.pem")
    (trusted,) = found.tls_context.get_ca_certs()
    assert "authority of the tests" in str(trusted["subject"])
    assert found.tls_context.check_hostname


def test_authorities_may_stand_in_the_file_itself(tmp_path: Path, authority: Authority) -> None:
    lines = authority.certificate.read_text().strip().replace("\n", "\\n\\\n")
    found = read(
        tmp_path,
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.certificates={lines}",
    )
    assert found.tls_context is not None
    assert len(found.tls_context.get_ca_certs()) == 1


def test_names_of_hosts_go_unchecked_only_where_the_file_says_so(tmp_path: Path) -> None:
    found = read(tmp_path, "security.protocol=SSL", "ssl.endpoint.identification.algorithm=")
    assert found.tls_context is not None
    assert not found.tls_context.check_hostname


SASL = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")
TLS = ("security.protocol=SSL",)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["", "security.protocol=TLS"],
            "line 2: security.protocol: 'TLS' is not one of PLAIN",
        ),
        (["security.protocl=SSL"], "line 1: security.protocl is not known here;"),
        ([*TLS, "ssl.cipher.suites=x"], "line 2: ssl.cipher.suites is not known here;"),
        (["#", SASL[0]], "line 2: security.protocol=SASL_PLAINTEXT needs sasl.jaas.config"),
        ([SASL[0], f"sasl.jaas.config={LOGIN}"], "line 1: security.protocol=SASL_PLAINTEXT needs"),
        ([SASL[0], "sasl.mechanism=GSSAPI", f"sasl.jaas.config={LOGIN}"], "line 2: sasl.mechanism"),
        ([*SASL, "sasl.jaas.config=x"], "line 3: sasl.jaas.config: it must end with ;"),
        ([*SASL, "sasl.jaas.config="], "line 3: sasl.jaas.config is empty"),
        (["sasl.mechanism=PLAIN"], "line 1: sasl.mechanism does not apply to security.protocol"),
        ([*TLS, "sasl.mechanism=PLAIN"], "line 2: sasl.mechanism does not apply to"),
        (["ssl.truststore.type=PEM"], "line 1: ssl.truststore.type does not apply to"),
        ([*TLS, "ssl.truststore.location=a.jks"], "line 2: ssl.truststore.type is JKS by default;"),
        (
            [*TLS, "ssl.keystore.location=a.p12", "ssl.keystore.type=PKCS12"],
            "line 3: ssl.keystore.type is PKCS12; only PEM can be read here: set ssl.keystore.",
        ),
        (
            [*TLS, "ssl.truststore.type=PEM", "ssl.truststore.location=/not/there.pem"],
            "line 3: ssl.truststore.location: '/not/there.pem' cannot be read: No such file",
        ),
        (
            [*TLS, "ssl.truststore.type=PEM", "ssl.truststore.certificates=x"],
            "line 3: ssl.truststore.certificates: the text cannot be read as PEM",
        ),
        ([*TLS, "ssl.key.password=x"], "line 2: ssl.key.password is set, but ssl.keystore"),
        (
            [*TLS, "ssl.endpoint.identification.algorithm=ldaps"],
            "line 2: ssl.endpoint.identification.algorithm is https",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(
    tmp_path: Path, lines: list[str], said: str
) -> None:
    assert refusal(tmp_path, *lines).startswith(f"client.properties, {said}")


def test_a_file_without_keys_is_no_keystore(tmp_path: Path, authority: Authority) -> None:
    location = f"ssl.keystore.location={authority.certificate}"
    said = refusal(tmp_path, *TLS, "ssl.keystore.type=PEM", location)
    assert said.startswith("client.properties, line 3: ssl.keystore.location: ")
    assert said.endswith("it must contain a private key and its certificates")


def test_a_file_that_is_no_text_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"a=b\nc=\xff\n")
    with pytest.raises(SettingError, match="line 2: this is not text in UTF-8"):
        read_command_config(str(path))


def test_a_file_that_is_not_there_or_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read: No such file"):
        read_command_config(str(tmp_path / "none"))
    with pytest.raises(SettingError, match="cannot be read: Is a directory"):
        read_command_config(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "login"),
    [
        (LOGIN, Login("u", "p")),
        ("x.PlainLoginModule REQUIRED password = 'p\\'q' username=u ;", Login("u", "p'q")),
        (f'{SCRAM} required\n\tusername="a;b" password="\\"=\\\\";\n', Login("a;b", '"=\\')),
    ],
)
def test_a_login_module_is_read_with_or_without_quotation_marks(text: str, login: Login) -> None:
    assert parse_jaas(text) == login


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "end with ;"),
        (";", "must be one of PlainLoginModule"),
        ("a.b.Krb5LoginModule required;", "must be one of PlainLoginModule"),
        (f'{PLAIN} username="u" password="p";', "the word required"),
        (f'{PLAIN} required username="u";', "must contain password="),
        (f'{PLAIN} required username="" password="secret";', "must contain username="),
        (f'{PLAIN} required username="u" password=sec ret;', "in quotation marks"),
        (f'{PLAIN} required username="u" password="sec"ret";', "not closed"),
        (f'{PLAIN} required username="u" password=sec;ret;', "a ; in a value must be quoted"),
        (f'{SCRAM} required username="u" password="secret" tokenauth="true";', "only username"),
    ],
)
def test_a_login_that_cannot_be_meant_is_refused_without_saying_the_password(
    text: str, said: str
) -> None:
    with pytest.raises(JaasError, match=said) as refused:
        parse_jaas(text)
    assert "sec" not in str(refused.value)
    assert "password='" not in repr(Login("u", "secret"))


def test_errors_of_the_client_name_the_settings_of_the_file() -> None:
    assert in_file_words(TLS_HINT).endswith("set security.protocol to PLAINTEXT or SASL_PLAINTEXT")


OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TOKENS = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER")
CLIENT = f'sasl.jaas.config={OAUTH_MODULE} required clientId="orders" clientSecret="hidden";'
HANDLER = "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


def asked(tmp_path: Path, *lines: str) -> Asked:
    """What an issuer is asked for by a file, which ends with the address of the issuer."""
    with TokenEndpoint(lambda: ("a.b.c", 60)) as endpoint:
        found = read(tmp_path, *TOKENS, *lines, f"{ENDPOINT}={endpoint.url}")
        assert (found.security_protocol, found.sasl_mechanism) == ("SASL_PLAINTEXT", "OAUTHBEARER")
        assert found.tokens is not None
        token = found.tokens.wait(found.tokens.ask(30), 30)
        assert token.value == "a.b.c"
    [only] = endpoint.asked
    return only


ORDERS = f"Basic {base64.b64encode(b'orders:hidden').decode()}"


def test_tokens_are_asked_for_as_kafkas_clients_do(tmp_path: Path) -> None:
    handler = f"{HANDLER}.OAuthBearerLoginCallbackHandler"
    found = asked(tmp_path, handler, CLIENT.replace(";", ' scope="all";'))
    assert found == Asked(ORDERS, {"grant_type": "client_credentials", "scope": "all"})


def test_id_and_secret_may_have_settings_of_their_own(tmp_path: Path) -> None:
    found = asked(
        tmp_path,
        f"sasl.jaas.config={OAUTH_MODULE} required;",
        "sasl.oauthbearer.client.credentials.client.id=orders",
        "sasl.oauthbearer.client.credentials.client.secret=hidden",
        "sasl.oauthbearer.scope=all",
        "sasl.oauthbearer.header.urlencode=false",
    )
    assert found == Asked(ORDERS, {"grant_type": "client_credentials", "scope": "all"})


def test_a_token_may_be_in_a_file_and_have_extensions(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c\n")
    found = read(
        tmp_path,
        *TOKENS,
        f'sasl.jaas.config={OAUTH_MODULE} required extension_pool="7";',
        f"{ENDPOINT}={(tmp_path / 'token').as_uri()}",
    )
    assert found.tokens is not None
    token = found.tokens.wait(found.tokens.ask(30), 30)
    assert (token.value, token.extensions) == ("a.b.c", {"pool": "7"})


def test_the_issuers_authority_stands_in_the_login_module(
    tmp_path: Path, authority: Authority
) -> None:
    trusting = f'ssl.truststore.type="PEM" ssl.truststore.location="{authority.certificate}";'
    found = read(
        tmp_path,
        *TOKENS,
        CLIENT.replace(";", f" {trusting}"),
        f"{ENDPOINT}=https://issuer.example/token",
    )
    provider = found.sasl_oauth_token_provider
    assert isinstance(provider, ClientCredentials)
    assert provider._ssl_context is not None
    assert len(provider._ssl_context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([CLIENT], "line 3: OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        ([], "line 2: OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        (
            [CLIENT, f"{ENDPOINT}=http://issuer.example/token"],
            f"line 4: {ENDPOINT}: it must be https://",
        ),
        (
            [CLIENT, f"{ENDPOINT}=file://x/y"],
            f"line 4: {ENDPOINT}: a file URL has the form file:///",
        ),
        (
            [f"{ENDPOINT}=https://issuer.example/token"],
            'line 2: sasl.jaas.config must contain clientId="..."; or set sasl.oauthbearer.client',
        ),
        (
            [f"sasl.jaas.config={LOGIN}", f"{ENDPOINT}=https://issuer.example/token"],
            "line 3: sasl.jaas.config: its login module must be one of OAuthBearerLoginModule",
        ),
        (
            [CLIENT.replace(";", ' unsecuredLoginStringClaim_sub="a";'), f"{ENDPOINT}=https://i/t"],
            "line 3: sasl.jaas.config: OAuthBearerLoginModule has the options clientId,",
        ),
        (
            [f"{HANDLER}.Mine", CLIENT, f"{ENDPOINT}=https://i/t"],
            "line 3: sasl.login.callback.handler.class: only Kafka's",
        ),
        (
            [CLIENT.replace(";", ' ssl.truststore.location="a.jks";'), f"{ENDPOINT}=https://i/t"],
            "line 3: sasl.jaas.config: only PEM can be read here",
        ),
        (
            [
                CLIENT.replace(";", ' ssl.truststore.type=PEM ssl.truststore.location="/no.pem";'),
                f"{ENDPOINT}=https://i/t",
            ],
            "line 3: sasl.jaas.config: ssl.truststore.location '/no.pem' cannot be read: No such",
        ),
        (
            [CLIENT, f"{ENDPOINT}=https://i/t", "sasl.oauthbearer.header.urlencode=maybe"],
            "line 5: sasl.oauthbearer.header.urlencode is true or false",
        ),
        (
            [CLIENT, "sasl.oauthbearer.assertion.algorithm=RS256"],
            "line 4: sasl.oauthbearer.assertion.algorithm is not known here",
        ),
    ],
)
def test_a_place_of_tokens_that_cannot_be_meant_is_refused_with_its_line(
    tmp_path: Path, lines: list[str], said: str
) -> None:
    text = refusal(tmp_path, *TOKENS, *lines)
    assert text.startswith(f"client.properties, {said}")
    assert "hidden" not in text


def test_settings_of_tokens_have_no_meaning_with_passwords(tmp_path: Path) -> None:
    text = refusal(tmp_path, *SASL, f"sasl.jaas.config={LOGIN}", f"{ENDPOINT}=https://i/t")
    assert text.startswith(f"client.properties, line 4: {ENDPOINT} applies to sasl.mech")


def test_an_issuer_that_refuses_is_told_without_what_it_is_called_inside(tmp_path: Path) -> None:
    with TokenEndpoint(lambda: ("a", 1)) as endpoint:
        endpoint.status, endpoint.body = 401, b'{"error":"invalid_client"}'
        found = read(tmp_path, *TOKENS, CLIENT, f"{ENDPOINT}={endpoint.url}")
        assert found.tokens is not None
        with pytest.raises(TokenError) as failed:
            found.tokens.wait(found.tokens.ask(30), 30)
    told = in_file_words(str(failed.value))
    assert told == f"{endpoint.url} answers 401: invalid_client"


def test_settings_of_another_client_are_read_alike() -> None:
    jaas = f'{PLAIN} required username="a" password="b\\\\c";'
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
        "isolation.level": "read_committed",
    }
    assert security_of(settings, "--kafka").sasl_plain_password == "b\\c"
    with pytest.raises(SettingError, match=r"--kafka, line 1: ssl\.truststore\.type is JKS"):
        security_of({"ssl.truststore.type": "JKS"}, "--kafka")
