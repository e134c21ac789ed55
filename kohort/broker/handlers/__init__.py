"""One module per API, named like its message module: check, translate, delegate.

Rules about groups, logs or topics live behind the services in
:class:`kohort.broker.dispatch.context.BrokerServices`; a handler validates, resolves names and ids,
delegates, and maps errors once. See :mod:`kohort.broker.dispatch.registry` for how one is
registered.
"""
