"""Errors in key stores, trust stores and the users file. Imports no modules of TLS or SASL."""


class StoreError(Exception):
    """An unusable key store or trust store, or a rejected security setting; the text gives the
    reason.
    """


class UsersFileError(Exception):
    """An unusable users file; the text contains the line's number but nothing of its content."""
