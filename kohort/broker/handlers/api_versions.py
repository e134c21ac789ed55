"""ApiVersions (key 18): list the requests and versions that this broker supports.

v0-5. The list is derived from the handlers' registrations, so it cannot contain an API or version
that is not served. A request of an unknown version does not reach this module: the dispatcher
answers it in v0, upon which clients retry with a lower version.
"""

import re
from typing import Final

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.dispatch.registry import handles
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

CLIENT_SOFTWARE_SINCE: Final = 3
ZERO_FEATURES_SINCE: Final = 4
EXPECTED_NODE_SINCE: Final = 5
NO_FEATURES_EPOCH: Final = -1
FEATURES_EPOCH: Final = 1
"""Feature levels never change, and clients only require a number that is not -1."""
SOFTWARE_CHARS: Final = 50
"""Maximum length of a name or version that is remembered; a client may send 32 kB."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""KIP-511's pattern for names and versions of client software."""


@handles(ApiVersionsRequest, versions="0-5")
def api_versions(
    ctx: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse | EncodedResponse:
    """Check and remember the client's software name and version, and list the APIs."""
    version = ctx.api_version
    if version >= CLIENT_SOFTWARE_SINCE:
        name, software_version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        ctx.connection.client_software = (
            f"{name[:SOFTWARE_CHARS]} {software_version[:SOFTWARE_CHARS]}"
        )
    if version >= EXPECTED_NODE_SINCE and (error := _check_expected_node(ctx, request)):
        return ApiVersionsResponse(error_code=error, api_keys=[])
    known = ctx.broker.api_versions.get(version)
    if known is None:
        response_codec = codec(ApiVersionsResponse, version)
        known = EncodedResponse(response_codec.encode(_list(ctx)))
        ctx.broker.api_versions[version] = known
    return known


def _list(ctx: RequestContext) -> ApiVersionsResponse:
    """Return the response, which does not change while the broker runs."""
    levels = ctx.broker.finalized_features
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(api_key=key, min_version=served.low, max_version=served.high)
            for key, served in ctx.broker.apis.items()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in ctx.broker.features.items()
            if low > 0 or ctx.api_version >= ZERO_FEATURES_SINCE
        ],
        finalized_features_epoch=FEATURES_EPOCH if levels else NO_FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
        ],
    )


def _check_expected_node(ctx: RequestContext, request: ApiVersionsRequest) -> ErrorCode:
    """Check the expected node (KIP-1242): the client learns at once that it reached another
    broker.
    """
    if (request.cluster_id is None) != (request.node_id == -1):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is None:
        return ErrorCode.NONE
    is_us = request.cluster_id == ctx.broker.cluster_id and request.node_id == ctx.broker.node_id
    return ErrorCode.NONE if is_us else ErrorCode.REBOOTSTRAP_REQUIRED
