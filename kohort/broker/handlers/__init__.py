"""One module per API, or for APIs that share most of their code: check, translate, delegate.

A handler validates, resolves names and ids, delegates, and maps errors once. The rules about
groups, logs and topics belong to the services in
:class:`kohort.broker.dispatch.context.BrokerServices`. See :mod:`kohort.broker.dispatch.registry`
for how a handler is registered.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from kohort.broker.dispatch.registry import Api, registered


def load_handlers() -> dict[int, Api]:
    """Import every handler module and return the APIs by key, in key order."""
    _import_handlers()
    return registered()


@cache
def _import_handlers() -> None:
    """Cached: listing the files takes a fifth of the start-up time of a broker in memory."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
