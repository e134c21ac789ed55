"""Share groups (KIP-932): members share partitions, and each record belongs to one member at a
time.
"""
