"""Parses `sasl.jaas.config`: one login module with its options."""

import re
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""\s*(?:
        "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<word>[^\s"'=;]+)
      | (?P<sign>[=;])
    )""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(.)")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "b": "\b"}
_FLAGS: Final = {"required", "requisite", "sufficient", "optional"}


class JaasError(ValueError):
    """A parse error; the message contains no values, because one of them is a password."""


class LoginModule(NamedTuple):
    """A login module. Its repr omits the options, because they contain a password."""

    name: str
    """The module's name without its package: ``PlainLoginModule``."""
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r})"


def parse_login_module(text: str, modules: tuple[str, ...]) -> LoginModule:
    """Parse `org...PlainLoginModule required username="u" password="p";`, or another of `modules`.

    Raises:
        JaasError: the text has another form, or another login module.
    """
    tokens = _tokens(text)
    if (False, "{") in tokens:
        raise JaasError("it must be a login module without KafkaServer { } around it")
    if tokens[-1:] != [(True, ";")]:
        raise JaasError("it must end with ;")
    words = [text for _, text in tokens]
    if (True, ";") in tokens[:-1]:
        raise JaasError("it must be one login module; a ; in a value must be quoted")
    module = words[0].rpartition(".")[2]
    if module not in modules:
        raise JaasError(f"its login module must be one of {', '.join(modules)}")
    if len(words) < 3 or words[1].lower() not in _FLAGS:
        raise JaasError(f"the word required must follow {module}")
    return LoginModule(module, _options(tokens[2:-1]))


def _tokens(text: str) -> list[tuple[bool, str]]:
    """Return (is_sign, text) for each sign, word or string; quotation marks are removed."""
    tokens = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError('a quotation mark is not closed; in a value it is written \\\\"')
        position = match.end()
        kind = match.lastgroup
        assert kind is not None
        value = match[kind]
        if kind in {"double", "single"}:
            value = _ESCAPE.sub(lambda escape: _CONTROL.get(escape[1], escape[1]), value)
        tokens.append((kind == "sign", value))
    return tokens


def _options(tokens: list[tuple[bool, str]]) -> dict[str, str]:
    """Return the options, each of which consists of three tokens: name, =, value."""
    options = {}
    for at in range(0, len(tokens), 3):
        match tokens[at : at + 3]:
            case [(False, name), (True, "="), (False, value)]:
                options[name] = value
            case _:
                raise JaasError(
                    'options are written name="value"; a value with a space or one of =;"\''
                    " has to be in quotation marks"
                )
    return options
