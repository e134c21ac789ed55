"""DescribeCluster (key 60): the cluster id, the controller and the brokers.

v0 by KIP-700; v1 brokers or controllers (KIP-919); v2 fenced brokers (KIP-1073). All versions are
flexible.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int8, Int16, Int32, String


@request(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """The kinds of nodes to include."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = field(default=1, since=1)
    """1 brokers, 2 controllers."""
    include_fenced_brokers: Bool = field(default=False, since=2)
    """Whether to include brokers that are registered but not serving."""


@struct
class DescribeClusterBroker:
    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
    is_fenced: Bool = field(default=False, since=2)


@response(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The cluster as this broker sees it.

    Error codes, top level:
    - UNSUPPORTED_ENDPOINT_TYPE (v1): neither brokers nor controllers.
    - MISMATCHED_ENDPOINT_TYPE (v1): controllers asked for on a broker's listener, or the reverse.
    - INVALID_REQUEST: fenced brokers asked of a controller.
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not describe the cluster.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field(default=1, since=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    """A broker returns any live broker: clients need one to send changes to."""
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-0x80000000)
    """Bit field; the smallest int32 means not asked for."""
