"""ApiVersions (key 18): the requests, with their versions, that a broker supports.

v1 throttle time; v2 answers before throttling; v3 flexible, client software (KIP-511), features
(KIP-584); v4 features may start at 0 (KAFKA-17011); v5 the client names the cluster and node it
expects (KIP-1242).

The response header never has tags, and a request of an unknown version is answered in v0, because
the client does not know the broker's versions yet.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int16, Int32, Int64, String


@request(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    """Usually the first request on a connection."""

    client_software_name: String = field(default="", since=3, ignorable=True)
    """Letters, digits, "-" and ".", not empty."""
    client_software_version: String = field(default="", since=3, ignorable=True)
    cluster_id: String | None = field(default=None, since=5, ignorable=True)
    """Set together with node_id, or not at all."""
    node_id: Int32 = field(default=-1, since=5, ignorable=True)


@struct
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    name: String
    min_version: Int16
    """The feature's lowest level. Versions below v4 must omit features whose lowest level is 0."""
    max_version: Int16


@struct
class FinalizedFeatureKey:
    name: String
    max_version_level: Int16
    min_version_level: Int16


@response(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    """The broker's API versions and features.

    Error codes:
    - UNSUPPORTED_VERSION: the request's own version is unknown; the answer is v0 with the range of
      key 18 alone.
    - INVALID_REQUEST (v3): malformed client software name or version; (v5) only one of cluster_id
      and node_id.
    - REBOOTSTRAP_REQUIRED (v5): this is another cluster or node than the client expects.
    """

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        default=[], since=3, tag=0, ignorable=True
    )
    finalized_features_epoch: Int64 = field(default=-1, since=3, tag=1, ignorable=True)
    """-1 if unknown; finalized_features is then meaningless."""
    finalized_features: list[FinalizedFeatureKey] = field(
        default=[], since=3, tag=2, ignorable=True
    )
    zk_migration_ready: Bool = field(default=False, since=3, tag=3, ignorable=True)
