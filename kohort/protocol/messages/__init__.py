"""Every request, response and stored record that Kohort supports, one module per API.

Nothing is imported here: a message is imported from its module, so that a program pays at start-up
for what it uses. Each API module is named after the API and declares, in this order, the structures
of the request, the request, the structures of the response and the response, under Kafka's names.
Error codes are listed in the response's docstring, per partition, per resource or for the whole.

The declarations cover the version ranges of Apache Kafka 4.4. Tests compare each of them with
Kafka's own definitions, so that a field cannot be changed here by mistake.
"""
