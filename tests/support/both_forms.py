"""A module as it is written and as it is compiled: its tests run both."""

import importlib.util
import sysconfig
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

_SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX"))


class BothForms:
    """The source and the compiled form of an imported module."""

    def __init__(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        self._module = module
        source = Path(module.__file__).with_name(f"{module.__name__.rpartition('.')[2]}.py")
        self.is_compiled: Final = source.with_suffix(_SUFFIX).exists()
        self.as_written: Final = _loaded(f"{source.stem}_as_written", source)

    def compiled(self) -> ModuleType:
        if not self.is_compiled:
            pytest.skip("not compiled: no C compiler was there when the package was built")
        return self._module


def _loaded(name: str, source: Path) -> ModuleType:
    loader = SourceFileLoader(name, str(source))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
