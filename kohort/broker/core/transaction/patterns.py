r"""Regular expressions of clients, matched without backtracking.

A pattern is compiled to a small automaton, of which all states are followed at once (Thompson), so
that a text takes steps in proportion to its length times the pattern's, whatever the pattern is.
Kafka uses RE2/J for the same reason.

Understood: characters, ``.``, classes with ranges and negation, ``\d \w \s`` and their opposites,
escaped characters, ``\t \n \r``, ``^ $``, groups, alternatives, ``* + ?`` and ``{m,n}``, lazy or
not. What a pattern for a whole name has no use for is refused: captures by name, flags,
look-around, back references, Unicode classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

LENGTH_MAX: Final = 1_000
"""Characters of a pattern."""
STATES_MAX: Final = 5_000
"""Size of the automaton: repetitions multiply what they repeat."""
REPEAT_MAX: Final = 1_000
"""Highest count in braces, as in RE2."""
DEPTH_MAX: Final = 50
"""Groups within groups."""

Test: TypeAlias = Callable[[str], bool]


class PatternError(ValueError):
    """The pattern is wrong, or uses what is not understood."""


class _Char(NamedTuple):
    """Goes on with a character that passes."""

    test: Test
    out: int


class _Split(NamedTuple):
    """Goes on in several places at once."""

    outs: tuple[int, ...]


class _Edge(NamedTuple):
    """Goes on at the beginning of the text, or at its end."""

    is_end: bool
    out: int


_State: TypeAlias = _Char | _Split | _Edge
_Build: TypeAlias = Callable[[int], int]
"""Adds a part of the pattern that goes on at a state; returns where it begins."""

_DONE: Final = 0


class Pattern:
    """A pattern for the whole of a text."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        if len(text) > LENGTH_MAX:
            raise PatternError(f"longer than {LENGTH_MAX} characters")
        parser = _Parser(text)
        build = parser.parse()
        self._states = parser.states
        self._begin = build(_DONE)

    def matches(self, text: str) -> bool:
        """Whether all of the text fits."""
        places = self._closure((self._begin,), is_first=True, is_last=not text)
        for position, character in enumerate(text):
            outs = []
            for place in places:
                state = self._states[place]
                if isinstance(state, _Char) and state.test(character):
                    outs.append(state.out)
            if not outs:
                return False
            places = self._closure(outs, is_first=False, is_last=position + 1 == len(text))
        return _DONE in places

    def _closure(
        self, begin: list[int] | tuple[int, ...], *, is_first: bool, is_last: bool
    ) -> set[int]:
        """All places that are reached without another character."""
        reached: set[int] = set()
        open_places = list(begin)
        while open_places:
            place = open_places.pop()
            if place in reached:
                continue
            reached.add(place)
            state = self._states[place]
            if isinstance(state, _Split):
                open_places += state.outs
            elif isinstance(state, _Edge) and (is_last if state.is_end else is_first):
                open_places.append(state.out)
        return reached


class _Parser:
    """Recursive descent; parts are built back to front, each knowing where it goes on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._repetitions = 0
        self.states: list[_State] = [_Split(())]

    def parse(self) -> _Build:
        build = self._alternatives()
        if self._at < len(self._text):
            raise PatternError(f"unexpected {self._text[self._at]!r} at {self._at}")
        return build

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _accept(self, text: str) -> bool:
        is_there = self._text.startswith(text, self._at)
        if is_there:
            self._at += len(text)
        return is_there

    def _add(self, state: _State) -> int:
        if len(self.states) >= STATES_MAX:
            raise PatternError("repeats too much")
        self.states.append(state)
        return len(self.states) - 1

    def _alternatives(self) -> _Build:
        branches = [self._sequence()]
        while self._accept("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return lambda out: self._add(_Split(tuple([branch(out) for branch in branches])))

    def _sequence(self) -> _Build:
        parts: list[_Build] = []
        while self._peek() not in {"", "|", ")"}:
            parts.append(self._repeated())

        def build(out: int) -> int:
            for part in reversed(parts):
                out = part(out)
            return out

        return build

    def _repeated(self) -> _Build:
        part = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return part
        self._accept("?")  # What is lazy fits the same texts.
        if self._peek() and self._peek() in "*+?{":
            raise PatternError(f"nothing to repeat at {self._at}")
        least, most = bounds

        def build(out: int) -> int:
            end = out
            if most is None:
                out = self._loop(part, out)
            else:
                for _ in range(most - least):
                    self._count_repetition()
                    # Each may be left out with all that follow, which are no use without it.
                    out = self._add(_Split((part(out), end)))
            for _ in range(least):
                self._count_repetition()
                out = part(out)
            return out

        return build

    def _count_repetition(self) -> None:
        """Repeating nothing adds no state, but takes its time."""
        self._repetitions += 1
        if self._repetitions > STATES_MAX:
            raise PatternError("repeats too much")

    def _loop(self, part: _Build, out: int) -> int:
        place = self._add(_Split(()))
        self.states[place] = _Split((part(place), out))
        return place

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._accept("*"):
            return 0, None
        if self._accept("+"):
            return 1, None
        if self._accept("?"):
            return 0, 1
        if not self._accept("{"):
            return None
        least = self._number()
        most: int | None = least
        if self._accept(","):
            most = None if self._peek() == "}" else self._number()
        if not self._accept("}") or (most is not None and most < least):
            raise PatternError(f"not a count of repetitions before {self._at}")
        return least, most

    def _number(self) -> int:
        begin = self._at
        while self._peek() and self._peek() in "0123456789":
            self._at += 1
        digits = self._text[begin : self._at]
        if not digits or len(digits) > len(str(REPEAT_MAX)) or int(digits) > REPEAT_MAX:
            raise PatternError(f"not a count of repetitions at {begin}")
        return int(digits)

    def _atom(self) -> _Build:
        character = self._take()
        if character == "(":
            return self._group()
        if character in "^$":
            return lambda out: self._add(_Edge(character == "$", out))
        if character in "*+?{":
            raise PatternError(f"nothing to repeat at {self._at - 1}")
        if character == "[":
            test = self._class()
        elif character == ".":
            test = _is_not_newline
        elif character == "\\":
            test = self._escape()
        else:
            test = character.__eq__
        return lambda out: self._add(_Char(test, out))

    def _group(self) -> _Build:
        if self._accept("?") and not self._accept(":"):
            raise PatternError("only plain groups are understood")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise PatternError("too many groups within each other")
        build = self._alternatives()
        self._depth -= 1
        if not self._accept(")"):
            raise PatternError("a group does not end")
        return build

    def _escape(self) -> Test:
        character = self._take()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROLS:
            return _CONTROLS[character].__eq__
        if character.isalnum():
            raise PatternError(f"\\{character} is not understood")
        return character.__eq__

    def _class(self) -> Test:
        is_negated = self._accept("^")
        tests: list[Test] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            tests.append(self._class_part())
        self._take()
        return lambda character: any(test(character) for test in tests) is not is_negated

    def _class_part(self) -> Test:
        low = self._take()
        if low == "[" and self._peek() == ":":
            raise PatternError("classes by name are not understood")
        if low == "\\":
            if self._peek() in _CLASSES:
                return _CLASSES[self._take()]
            low = self._escaped_character()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in {"]", ""}:
            return low.__eq__
        self._take()
        high = self._take()
        if high == "\\":
            high = self._escaped_character()
        if high < low:
            raise PatternError(f"not a range: {low}-{high}")
        return lambda character: low <= character <= high

    def _escaped_character(self) -> str:
        character = self._take()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum():
            raise PatternError(f"\\{character} is not understood")
        return character


def _is_not_newline(character: str) -> bool:
    return character != "\n"


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())


def _is_space(character: str) -> bool:
    return character in " \t\n\r\f"


_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CLASSES: Final[dict[str, Test]] = {
    "d": _is_digit,
    "D": lambda character: not _is_digit(character),
    "w": _is_word,
    "W": lambda character: not _is_word(character),
    "s": _is_space,
    "S": lambda character: not _is_space(character),
}
