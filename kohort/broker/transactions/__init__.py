"""The transaction coordinator's shells: transactional ids, their log, and markers for
partitions.
"""
