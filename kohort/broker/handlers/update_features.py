"""UpdateFeatures (key 57): no feature has a level that can be changed.

v0-2 as in Kafka 4.4, which refuses unknown features in the same way. The features that this broker
supports are always enabled.
"""

from __future__ import annotations

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


@handles(UpdateFeaturesRequest, versions="0-2")
def update_features(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuse all updates together, since one failure fails all."""
    if ctx.broker.access is not None:
        ctx.require(Operation.ALTER, ResourceType.CLUSTER)
    if not request.feature_updates:
        return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None)
    update = request.feature_updates[0]
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=(
            "The update failed for all features since the following feature had an error: Invalid "
            f"update version {update.max_version_level} for feature {update.feature}. This broker "
            "has no feature whose level can be changed."
        ),
    )
