"""One module per API, named like its message module: check, translate, delegate.

A handler validates, resolves names and ids, delegates, and maps errors once. The rules about
groups, logs and topics belong to the services in
:class:`kohort.broker.dispatch.context.BrokerServices`. See :mod:`kohort.broker.dispatch.registry`
for how a handler is registered.
"""
