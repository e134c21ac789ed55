"""The Kafka wire protocol: bytes <-> typed messages, with no I/O, no clock and no tasks.

Messages are declared once per api for all versions (:mod:`protocol.message`,
:mod:`protocol.messages`); a declaration and a version give a construct layout
(:mod:`protocol.layout`), and the layout gives a fast codec (:mod:`protocol.codec`).
"""
