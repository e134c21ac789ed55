"""Finds the HTTP ports of a Kohort broker through its Kafka port."""

from typing import Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.configs import Kind, Resource, described
from kohort.cli.admin_http import LOCAL_HOSTS, url_of

METRICS: Final = "kohort.metrics"
CONSOLE: Final = "kohort.console"
"""Prefix of the settings of the console's HTTP port; METRICS is the other HTTP port's prefix."""

_TLS: Final = ("listener.name.http.ssl.keystore.location", "listener.name.http.ssl.keystore.type")
"""A broker's HTTP ports have TLS if one of these settings is set."""
_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - not bound here.


def http_of(cluster: Cluster, which: str = METRICS) -> str | None:
    """Return the URL of an HTTP port of the first broker, according to that broker's configs.

    None if the broker has no port that can be reached from here, if it is Apache Kafka, or if the
    user may not see configs. Raises DisconnectedError.
    """
    metadata = cluster.metadata([])
    node_id = metadata.brokers[0].node_id
    broker = cluster.broker(metadata, node_id)
    assert broker is not None
    resource = Resource(Kind.BROKER, str(node_id))
    try:
        names = [f"{which}.port", f"{which}.host", *_TLS]
        configs = described(cluster, broker, resource, names, "the HTTP port")
    except RefusedError:
        return None
    values = {config.name: config.value for config in configs}
    port, host = values.get(f"{which}.port"), values.get(f"{which}.host") or ""
    if port is None or int(port) <= 0:
        return None
    of_broker = metadata.brokers[0].host
    if host in _EVERY_INTERFACE:
        host = of_broker
    elif host in LOCAL_HOSTS and of_broker not in LOCAL_HOSTS:
        return None
    scheme = "https" if any(values.get(name) for name in _TLS) else "http"
    return url_of(host, int(port), scheme)
