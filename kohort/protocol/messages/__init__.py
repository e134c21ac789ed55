"""Every request, response and stored record that Kohort supports, one module per API or subject.

Nothing is imported here: a message is imported from its module, so that a program loads only what
it uses. An API is declared in this order: the structures of the request, the request, the
structures of the response and the response, under Kafka's names.
Error codes are listed in the response's docstring, per partition, per resource or for the whole,
except for those that mean the same in every API:

- TOPIC_AUTHORIZATION_FAILED and its like: the principal may not do that. SECURITY_DISABLED: there
  is no authorizer. POLICY_VIOLATION: refused by the broker's policy.
- NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS: find the coordinator
  again, or wait. NOT_CONTROLLER: ask the active controller. NOT_LEADER_OR_FOLLOWER: another broker
  leads the partition.
- UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, GROUP_ID_NOT_FOUND: it does not exist.
  INVALID_TOPIC_EXCEPTION, INVALID_GROUP_ID: an illegal name.
- UNKNOWN_MEMBER_ID: the group has no such member. FENCED_INSTANCE_ID: another process has taken
  over the instance id.
- FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH: the client's metadata is older or newer than the
  broker's.
- CONCURRENT_TRANSACTIONS: the previous transaction is still being ended; try again.
  TRANSACTION_ABORTABLE: the producer should abort its transaction and go on.
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the client is not authenticated.
  DELEGATION_TOKEN_AUTH_DISABLED: delegation tokens are disabled.
- THROTTLING_QUOTA_EXCEEDED: too many changes; try later. KAFKA_STORAGE_ERROR: the disk failed.

The declarations cover the version ranges of Apache Kafka 4.4. Tests compare each of them with
Kafka's own definitions, so that a field cannot be changed here by mistake.
"""
