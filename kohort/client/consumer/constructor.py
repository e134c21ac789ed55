"""The constructor of `Consumer`, overloaded so that type checkers infer the types of keys and
values from the deserialisers: their return type, or the result type of their coroutine.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Unpack, overload

from kohort.client.config import ConsumerSettings, OtherSettings

if TYPE_CHECKING:
    # Only type checkers see this. A plain `Consumer` without parameters means `Consumer[Any, Any]`.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from kohort.client.core.records import K, V

Raw: TypeAlias = Any
"""A key or value without a deserialiser: bytes or None. Typed as Any, since most topics never
contain None and users should not have to check for it."""


class TypedConstructor(Generic[K, V]):
    """`K` and `V` are the types of deserialised keys and values."""

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
    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None: ...

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        """Create a consumer, subscribed to `topics` if any are given.

        Raises:
            ConfigError: a setting cannot be used (see `ConsumerConfig`).
        """
        self._set_up(topics, settings)

    def _set_up(self, topics: tuple[str, ...], settings: ConsumerSettings) -> None:
        raise NotImplementedError
