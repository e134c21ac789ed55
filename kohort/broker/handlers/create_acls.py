"""CreateAcls (key 30): add access rules; each succeeds or fails individually.

v1-3 as in Kafka 4.4; the pattern type came with v1 (KIP-290). Adding an existing rule succeeds.
Where Kafka answers UNKNOWN_SERVER_ERROR or closes the connection, the answer here is
INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.core.security.acls import InvalidRuleError, Operation, Rule, rule_of
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.failures import ErrorTemplate, OnError
from kohort.broker.dispatch.parts import lists
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.access_rules import rules_in_force
from kohort.broker.runtime.slices import Slice
from kohort.broker.security.rules import TooManyRulesError
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

PART_MAX: Final = 2_000
"""Rules that are stored together."""


@handles(
    CreateAclsRequest,
    versions="1-3",
    on_error=OnError(ErrorTemplate(response="results", request="creations", copied={})),
    parts=(lists("creations", "results"),),
    part_max=PART_MAX,
)
async def create_acls(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add rules; requires ALTER on the cluster. Answered when they are durable and in effect."""
    rules = rules_in_force(ctx, Operation.ALTER, text="No Authorizer is configured.")
    results = []
    new: list[Rule] = []
    time_slice = Slice(ctx.broker.clock)
    for creation in request.creations:
        result = AclCreationResult(error_code=ErrorCode.NONE, error_message="")
        results.append(result)
        try:
            new.append(_rule(creation))
        except InvalidRuleError as error:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
        await time_slice.pause()
    try:
        await rules.create(new)
    except TooManyRulesError as error:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from None
    return CreateAclsResponse(results=results)


def _rule(creation: AclCreation) -> Rule:
    return rule_of(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
