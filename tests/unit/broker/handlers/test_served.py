import pkgutil

import pytest

from kohort.broker import handlers
from kohort.broker.handlers import SERVED, Handlers, load_handlers


def test_every_handler_module_is_served() -> None:
    modules = {found.name for found in pkgutil.iter_modules(handlers.__path__)} - {"shared"}
    # Share groups are served as soon as all of their APIs work together.
    waiting = {module for module in modules if module.startswith("share_")}
    assert {served.module for served in SERVED.values()} | waiting == modules


def test_the_apis_are_in_key_order_under_their_own_keys() -> None:
    apis = load_handlers()
    assert list(apis) == sorted(apis)
    assert all(api.key == key for key, api in apis.items())


def test_an_unknown_key_is_not_served() -> None:
    apis = Handlers()
    assert apis.get(32000) is None
    assert 32000 not in apis
    with pytest.raises(KeyError):
        apis[32000]
