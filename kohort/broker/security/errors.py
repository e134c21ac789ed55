"""Why a broker cannot start with its stores or users file. Light: no TLS and no SASL."""


class StoreError(Exception):
    """An unusable key store or trust store; the text says which and why."""


class UsersFileError(Exception):
    """An unusable users file; the text contains the line's number but nothing of its content."""
