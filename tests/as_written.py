"""A plugin of pytest (`-p tests.as_written`): all of our modules run as they are written.

Where a module lies compiled beside its source, Python would take that.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from types import ModuleType

PACKAGES = ("kohort/protocol", "kohort/broker", "kohort/client")
"""The folders of `scripts/compile_hook.py`."""

_NAMES = tuple(package.replace("/", ".") + "." for package in PACKAGES)


class SourceFinder(MetaPathFinder):
    """Finds modules within our packages, by their sources alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not path or not fullname.startswith(_NAMES):
            return None
        for folder in path:
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(
                fullname, target
            )
            if spec is not None:
                return spec
        # Or Python would go on to look for one that has no source beside it.
        raise ModuleNotFoundError(fullname, name=fullname)


def compiled_modules() -> list[str]:
    """Those of ours that have been imported compiled."""
    return [
        name
        for name, module in sys.modules.items()
        if name.startswith(_NAMES)
        and str(getattr(module, "__file__", "")).endswith(tuple(EXTENSION_SUFFIXES))
    ]


def pytest_configure() -> None:
    assert not compiled_modules(), "too late: some of our modules are imported"
    sys.meta_path.insert(0, SourceFinder())


def pytest_sessionfinish() -> None:
    assert not compiled_modules()
