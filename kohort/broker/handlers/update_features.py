"""UpdateFeatures (key 57): no feature has a level that can be changed.

v0-2. As in Kafka 4.4, a feature may be set to its current level, which changes nothing, and an
unknown feature is rejected. The features of this broker are always enabled, at levels that its
settings fix.
"""

from typing import Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPES: Final = range(1, 4)
"""Upgrade, safe and unsafe downgrade. The level stays the same, so all of them are accepted."""


@handles(UpdateFeaturesRequest, versions="0-2")
def update_features(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Accept updates to the current level. One other update makes all fail, as in Kafka."""
    ctx.require(Operation.ALTER, ResourceType.CLUSTER)
    for update in request.feature_updates:
        level = ctx.broker.finalized_features.get(update.feature)
        if update.max_version_level != level or update.upgrade_type not in _UPGRADE_TYPES:
            return _refused(update)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.NONE, error_message="NONE"
            )
            for update in request.feature_updates
        ],
    )


def _refused(update: FeatureUpdateKey) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=(
            "The update failed for all features since the following feature had an error: Invalid "
            f"update version {update.max_version_level} for feature {update.feature}. This broker "
            "has no feature whose level can be changed."
        ),
    )
