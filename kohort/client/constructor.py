"""The constructor of `Consumer`, from which type checkers know what keys and values are: what the
deserialisers return, or what comes of awaiting that.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Unpack, overload

from kohort.client.config import OtherSettings, Settings

if TYPE_CHECKING:
    # Of type checkers alone. Who says `Consumer` without the two means any.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from kohort.client.core.records import K, V

Raw: TypeAlias = Any
"""Keys or values without a deserialiser: bytes, or None. Most topics never have None, so users need
not ask for it.
"""


class TypedConstructor(Generic[K, V]):
    """`K` and `V` are what keys and values become."""

    @overload
    def __init__(
        self: TypedConstructor[Raw, Raw],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: TypedConstructor[K, Raw],
        *topics: str,
        key_deserializer: Callable[[Any], Coroutine[Any, Any, K]],
        value_deserializer: None = None,
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: TypedConstructor[K, Raw],
        *topics: str,
        key_deserializer: Callable[[Any], K],
        value_deserializer: None = None,
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: TypedConstructor[Raw, V],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: Callable[[Any], Coroutine[Any, Any, V]],
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        *topics: str,
        key_deserializer: Callable[[Any], Coroutine[Any, Any, K]],
        value_deserializer: Callable[[Any], Coroutine[Any, Any, V]],
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        *topics: str,
        key_deserializer: Callable[[Any], K],
        value_deserializer: Callable[[Any], Coroutine[Any, Any, V]],
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(
        self: TypedConstructor[Raw, V],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: Callable[[Any], V],
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        *topics: str,
        key_deserializer: Callable[[Any], Coroutine[Any, Any, K]],
        value_deserializer: Callable[[Any], V],
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(
        self,
        *topics: str,
        key_deserializer: Callable[[Any], K],
        value_deserializer: Callable[[Any], V],
        **settings: Unpack[OtherSettings],
    ) -> None: ...

    @overload
    def __init__(self, *topics: str, **settings: Unpack[Settings]) -> None: ...

    def __init__(self, *topics: str, **settings: Unpack[Settings]) -> None:
        """`topics` are subscribed to, if there are any.

        Raises:
            ConfigError: a setting cannot be used (see `ConsumerConfig`).
        """
        self._set_up(topics, settings)

    def _set_up(self, topics: tuple[str, ...], settings: Settings) -> None:
        raise NotImplementedError
