"""State machines for random walks: `step` declares a step, `walk` takes steps by chance.

A walk that fails is shortened, by leaving out what it can do without.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

F = TypeVar("F", bound=Callable[..., None])
When = Callable[[Any], bool]
Value = Callable[[Random], Any]
"""Draws an argument."""


def flag() -> Value:
    return lambda random: random.random() < 0.5


def number(least: int, most: int) -> Value:
    return lambda random: random.randint(least, most)


def choice(values: Sequence[Any]) -> Value:
    return lambda random: random.choice(values)


def perhaps(value: Value) -> Value:
    """None, or a value."""
    return lambda random: value(random) if random.random() < 0.5 else None


def row(*values: Value) -> Value:
    """A tuple."""
    return lambda random: tuple(value(random) for value in values)


def several(value: Value, least: int, most: int) -> Value:
    """A list."""
    return lambda random: [value(random) for _ in range(random.randint(least, most))]


@dataclass(frozen=True)
class Step:
    name: str
    when: When | None
    values: dict[str, Value]
    is_first: bool


def step(
    when: When | None = None, /, *, is_first: bool = False, **values: Value
) -> Callable[[F], F]:
    """Declare a method as a step that may be taken `when` this holds, or that begins every run."""

    def declare(method: F) -> F:
        method.walk_step = Step(  # type: ignore[attr-defined]
            method.__name__, when, values, is_first
        )
        return method

    return declare


class Machine(Protocol):
    """Its steps are declared with `step`."""

    def check_all(self) -> None:
        """All invariants."""
        ...

    def teardown(self) -> None: ...


Taken = list[tuple[str, dict[str, Any]]]
"""Names of steps with their arguments."""


class WalkError(AssertionError):
    """A walk has failed; the text says how to repeat it."""


def walk(
    machine: Callable[[], Machine],
    seed: str,
    *,
    steps: int,
    steps_of_run: int = 100,
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Take so many steps, in runs that start again; returns how many it were. Raises WalkError."""
    done = number_of_run = 0
    while done < steps:
        run_seed = f"{seed}.{number_of_run}"
        done += walk_once(machine, run_seed, steps_of_run)
        number_of_run += 1
        progress(done)
    return done


def walk_once(machine: Callable[[], Machine], seed: str, steps: int) -> int:
    """One run; returns how many steps were taken. Raises WalkError."""
    random = Random(seed)
    taken: Taken = []
    try:
        _take(machine(), random, steps, taken)
    except Exception as error:
        shortest = _shorten(machine, taken, type(error))
        lines = [f"  {name} {arguments}" for name, arguments in shortest]
        raise WalkError(
            f"walk with seed {seed!r} failed after {len(taken)} steps: {error!r}\n"
            f"These {len(shortest)} fail alike:\n" + "\n".join(lines)
        ) from error
    return len(taken)


def _steps_of(machine: Machine) -> list[Step]:
    methods = (getattr(type(machine), name) for name in dir(type(machine)))
    return [method.walk_step for method in methods if hasattr(method, "walk_step")]


def _take(machine: Machine, random: Random, steps: int, taken: Taken) -> None:
    all_steps = _steps_of(machine)
    for first in (one for one in all_steps if one.is_first):
        _take_one(machine, first.name, _pick(first, random), taken)
    others = [one for one in all_steps if not one.is_first]
    while len(taken) < steps:
        chosen = random.choice(others)
        if chosen.when is None or chosen.when(machine):
            _take_one(machine, chosen.name, _pick(chosen, random), taken)
    machine.teardown()


def _pick(one: Step, random: Random) -> dict[str, Any]:
    return {name: value(random) for name, value in one.values.items()}


def _take_one(machine: Machine, name: str, arguments: dict[str, Any], taken: Taken) -> None:
    taken.append((name, arguments))
    getattr(machine, name)(**arguments)
    machine.check_all()


def _fails(machine: Machine, steps: Taken, kind: type[Exception]) -> bool:
    by_name = {one.name: one for one in _steps_of(machine)}
    try:
        for name, arguments in steps:
            when = by_name[name].when
            if when is None or when(machine):
                _take_one(machine, name, arguments, [])
        machine.teardown()
    except kind:
        return True
    except Exception:  # noqa: BLE001 - another fault than the one that is looked for.
        return False
    return False


def _shorten(machine: Callable[[], Machine], taken: Taken, kind: type[Exception]) -> Taken:
    """Leave out ever smaller parts for as long as the rest still fails. The first step stays."""
    size = len(taken) // 2
    while size:
        start = 1
        while start < len(taken):
            fewer = taken[:start] + taken[start + size :]
            if _fails(machine(), fewer, kind):
                taken = fewer
            else:
                start += size
        size //= 2
    return taken
