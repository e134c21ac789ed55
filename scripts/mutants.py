"""`python -m scripts.mutants`: mutation testing of random lines of `kohort`.

Applies random mutations, one at a time, to a copy of the tree without compiled modules, and runs
the tests nearest to the mutated module; if the mutant survives, wider suites run. A failed test
must pass without the mutation; otherwise it is deselected and the mutant is tested again.

Prints each mutant with its number, the seed, the change and the failed test. Fails if the share of
survivors exceeds `--survivors`; mutants that `equivalent_mutants.toml` lists do not count.

mutmut 3 does not mutate functions with decorators; cosmic-ray runs one command for all mutants and
mutates the working tree. Here most of the speed comes from running the nearest tests first.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from scripts.mutations import Mutation, mutations

ROOT: Final = Path(__file__).parents[1]
EQUIVALENT: Final = ROOT / "scripts" / "equivalent_mutants.toml"
MEMORY_MAX: Final = 4 << 30
"""Limit of each test process's data: a mutant may append for ever."""
UNIT_TIMEOUT_S: Final = 120
"""Timeout of a test in the unit and property suites; other tests have their usual one."""
ZIP_BEGIN_S: Final = 400_000_000
"""A time in 1982: a zip archive cannot have files from before 1980."""

STAGES: Final[tuple[tuple[int | None, tuple[str, ...]], ...]] = (
    (6, ("unit", "property")),
    (20, ("unit", "property")),
    (10, ("simulation", "integration", "interop", "pipeline")),
    (None, ("unit", "property", "simulation")),
    (None, ("integration", "interop", "crash", "fuzz", "pipeline")),
)
"""For each stage: how many of the nearest test files run, None for all, and from which suites."""


class Imports:
    """Finds the tests nearest to a module by the imports between all modules of the tree."""

    def __init__(self, root: Path) -> None:
        paths = [path for top in ("kohort", "tests") for path in (root / top).rglob("*.py")]
        self._names = {_module(path.relative_to(root)): path for path in paths}
        self._root = root
        self._packages: defaultdict[str, set[str]] = defaultdict(set)
        for name in self._names:
            self._packages[name.rpartition(".")[0]].add(name)
        self._importers: defaultdict[str, set[str]] = defaultdict(set)
        for name, path in self._names.items():
            for imported in self._imported(path):
                self._importers[imported].add(name)

    def tests(self, path: str) -> tuple[list[str], list[str]]:
        """Return (near, far): paths of the test modules that import the module, even indirectly,
        the nearest first; and of the others, which may run it in another process.
        """
        source = Path(path)
        distances = self._distances(_module(source))
        folder = ("unit", *source.parts[1:-1])
        stem = source.parent.name if source.stem == "__init__" else source.stem.strip("_")

        subject = {word for part in (*source.parts[2:-1], stem) for word in part.split("_")}

        def rank(name: str) -> tuple[bool, float, str]:
            test = self._names[name].relative_to(self._root / "tests")
            is_mirror = test.stem == f"test_{stem}" and test.parts[:2] == folder[:2]
            words = subject & set(test.stem.split("_"))
            folders = sum(1 for one, other in zip(folder, test.parts, strict=False) if one == other)
            return not is_mirror, distances.get(name, 9) - len(words) - folders / 2, name

        tests = [name for name in self._names if self._names[name].name.startswith("test_")]
        near, far = list[str](), list[str]()
        for name in sorted(tests, key=rank):
            chosen = near if name in distances or not rank(name)[0] else far
            chosen.append(str(self._names[name].relative_to(self._root)))
        return near, far

    def _distances(self, module: str) -> dict[str, int]:
        distances, queue = {module: 0}, [module]
        for name in queue:
            for importer in self._importers[name] - distances.keys():
                # An __init__ re-exports what it imports.
                is_package = self._names[importer].name == "__init__.py"
                distances[importer] = distances[name] + (not is_package)
                queue.append(importer)
        return distances

    def _imported(self, path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self._names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in self._names else node.module
            elif isinstance(node, ast.Constant) and node.value in self._names:
                # Imported by name on first use, or with its whole package.
                yield node.value
                yield from self._packages.get(node.value, ())


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run of pytest."""

    return_code: int
    """pytest's exit code: 0 if all passed, 5 if nothing was collected; -1 if it was killed."""
    failed: str | None
    """The node id of the test, or the path of the module, that failed first."""
    is_late: bool = False

    @property
    def is_green(self) -> bool:
        return self.return_code in {0, 5}


@dataclass(slots=True)
class Copy:
    """A copy of the tree, in which one file at a time is mutated."""

    root: Path
    limit_s: float
    _changes: int = 0
    _holds: set[str] = field(default_factory=set)
    """Tests that have passed without a mutation."""
    broken: set[str] = field(default_factory=set)
    """Tests that fail without a mutation."""

    @classmethod
    def make(cls, root: Path, limit_s: float) -> Copy:
        """Copy all files that git does not ignore, so no compiled modules."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).exists():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name, follow_symlinks=False)
        for name in (".venv", ".cache"):
            (root / name).symlink_to(ROOT / name)
        copy = cls(root, limit_s)
        found = copy._run([sys.executable, "-c", "import kohort; print(kohort.__file__)"])
        assert found[1].startswith(str(root)), f"tests would import {found[1]}"
        return copy

    def write(self, path: str, source: bytes) -> None:
        self._changes += 1
        (self.root / path).write_bytes(source)
        # Python compares only the size and the second of a change with those in the bytecode.
        changed_s = ZIP_BEGIN_S + self._changes
        os.utime(self.root / path, (changed_s, changed_s))

    def pytest(self, tests: Sequence[str]) -> Outcome:
        cache = self.root / ".pytest_cache"
        shutil.rmtree(cache, ignore_errors=True)
        options = ["-x", "-q", "--no-header", "-p", "no:randomly"]
        if all(test.startswith(("tests/unit/", "tests/property/")) for test in tests):
            options.append(f"--timeout={UNIT_TIMEOUT_S}")
        options += [f"--deselect={test}" for test in sorted(self.broken) if "::" in test]
        options += [f"--ignore={test}" for test in sorted(self.broken) if "::" not in test]
        tests = [test for test in tests if test not in self.broken]
        if not tests:
            return Outcome(5, None)
        code, _ = self._run([sys.executable, "-m", "pytest", *options, *tests])
        last = cache / "v" / "cache" / "lastfailed"
        failed = next(iter(json.loads(last.read_text()) if last.exists() else ()), None)
        return Outcome(code if code is not None else -1, failed, is_late=code is None)

    def kills(self, path: str, original: bytes, mutant: bytes, tests: Sequence[str]) -> str | None:
        """Return the test that kills the mutant, None if none of them does."""
        while True:
            self.write(path, mutant)
            try:
                outcome = self.pytest(tests)
            finally:
                self.write(path, original)
            if outcome.is_late:
                # Not a test that hangs: that would have failed at its own timeout.
                _say(f"    not finished within {self.limit_s:.0f} s: {' '.join(tests[:6])} ...")
                return None
            if outcome.is_green:
                return None
            if outcome.failed is None:
                return f"pytest ended with {outcome.return_code}"
            if outcome.failed in self._holds or self.pytest([outcome.failed]).is_green:
                self._holds.add(outcome.failed)
                return outcome.failed
            _say(f"    fails without a mutation: {outcome.failed}")
            self.broken.add(outcome.failed)

    def _run(self, command: Sequence[str]) -> tuple[int | None, str]:
        """Return the exit code, None if the process was killed after the limit, and the output."""
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(  # noqa: S603
                command,
                cwd=self.root,
                env=os.environ | {"PYTHONPATH": str(self.root)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_limit_memory,  # noqa: PLW1509 - no threads here.
            )
            try:
                code: int | None = process.wait(self.limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # Also kills processes that tests have left behind.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return code, output.read()


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, resource.RLIM_INFINITY))


def sample(seed: int) -> Iterator[Mutation]:
    """Yield all mutations of the tree in a random order, each kind with the same probability."""
    paths = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "kohort").rglob("*.py"))
    kinds: defaultdict[str, list[Mutation]] = defaultdict(list)
    for path in paths:
        for mutation in mutations(path, (ROOT / path).read_bytes()):
            kinds[mutation.kind].append(mutation)
    count = sum(map(len, kinds.values()))
    _say(f"{count:,} mutations of {len(paths)} files; --seed {seed}")
    chance = random.Random(seed)  # noqa: S311
    while kinds:
        kind = chance.choice([*kinds])
        found = kinds[kind]
        yield found.pop(chance.randrange(len(found)))
        if not found:
            del kinds[kind]


def stages(near: Sequence[str], far: Sequence[str], last: int) -> Iterator[list[str]]:
    """Yield the tests of each stage; no test is in two stages."""
    done: set[str] = set()
    for count, suites in STAGES[:last]:
        folders = tuple(f"tests/{suite}/" for suite in suites)
        tests = near if count and "unit" in suites else [*near, *far]
        chosen = [test for test in tests if test.startswith(folders)][:count]
        yield [test for test in chosen if test not in done]
        done.update(chosen)


def equivalent() -> dict[str, str]:
    """Return why each mutant that no test can kill is equivalent, by key."""
    entries: Iterable[dict[str, str]] = tomllib.loads(EQUIVALENT.read_text())["equivalent"]
    return {entry["mutant"]: entry["reason"] for entry in entries}


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Test the mutants; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=50, help="mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))  # noqa: S311
    parser.add_argument("--only", type=int, nargs="+", help="numbers of mutants of this seed")
    parser.add_argument(
        "--stages",
        type=int,
        default=len(STAGES),
        help="1: only the nearest tests",
    )
    parser.add_argument("--survivors", type=float, default=0.05, help="share that may survive")
    parser.add_argument("--limit-s", type=float, default=3600, help="time limit of a stage")
    options = parser.parse_args()
    # Exit normally, so that the copy is removed and tests are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    numbers = options.only or range(1, options.count + 1)
    reasons, imports, survivors, counted = equivalent(), Imports(ROOT), list[str](), 0
    chosen = dict(enumerate(islice(sample(options.seed), max(numbers)), 1))
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Copy.make(Path(directory), options.limit_s)
        for number in numbers:
            mutation = chosen[number]
            start_s = time.monotonic()
            _say(f"{number}. {mutation}")
            if mutation.key in reasons:
                _say(f"    equivalent: {reasons[mutation.key]}")
                continue
            counted += 1
            original = (copy.root / mutation.path).read_bytes()
            near_and_far = imports.tests(mutation.path)
            for stage, tests in enumerate(stages(*near_and_far, options.stages), 1):
                if not tests:
                    continue
                killer = copy.kills(mutation.path, original, mutation.apply(original), tests)
                took = f"stage {stage}, {len(tests)} modules, {time.monotonic() - start_s:.0f} s"
                if killer is not None:
                    _say(f"    killed ({took}): {killer}")
                    break
                _say(f"    survived ({took}): {' '.join(tests[:6])} ...")
            else:
                survivors.append(f"{number}. {mutation}")
    _say(f"{counted - len(survivors)} of {counted} killed; --seed {options.seed}; survivors:")
    _say("\n".join(survivors))
    return int(len(survivors) > options.survivors * counted)


if __name__ == "__main__":
    sys.exit(main())
