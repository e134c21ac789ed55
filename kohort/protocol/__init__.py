"""The Kafka wire protocol: bytes <-> typed messages, with no I/O, no clock and no tasks.

Messages are declared once per api for all versions (:mod:`kohort.protocol.message`,
:mod:`kohort.protocol.messages`); a declaration and a version give a construct layout
(:mod:`kohort.protocol.layout`), and the layout gives a fast codec (:mod:`kohort.protocol.codec`).
"""
