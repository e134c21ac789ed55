"""UpdateFeatures (key 57): raise or lower the level of features of the whole cluster.

v1 kinds of changes, and validation only (KIP-778); v2 one error for all features (KIP-1022).
Defined by KIP-584.
"""

from kohort.protocol.message import field, request, response, struct
from kohort.protocol.types import Bool, Int8, Int16, Int32, String


@struct
class FeatureUpdateKey:
    feature: String
    max_version_level: Int16
    """The new level; below 1 to remove the feature's level."""
    allow_downgrade: Bool = field(default=False, until=0)
    upgrade_type: Int8 = field(default=1, since=1)
    """1 raises the level, 2 lowers it if nothing is lost, 3 lowers it."""


@request(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = field(default=60_000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = field(default=False, since=1)


@struct
class UpdatableFeatureResult:
    feature: String
    error_code: Int16
    error_message: String | None


@response(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """The outcome, up to v1 also per feature.

    Error codes:
    - INVALID_UPDATE_VERSION: the feature cannot have that level.
    - INVALID_REQUEST: a feature is named twice, or there is no such kind of change.
    - CLUSTER_AUTHORIZATION_FAILED: the principal may not alter the cluster.
    """

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: String | None
    results: list[UpdatableFeatureResult] = field(default=[], until=1, ignorable=True)
