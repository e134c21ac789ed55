"""The access rules while the broker runs: kept in the metadata store, asked by handlers.

A change is stored, in both copies and forced to disk, before the authorizer applies it and before
it is answered; so an acknowledged change survives a crash, and applies to the next request of any
connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol

from kohort.broker.core.security.acls import Rule, RuleFilter, rule_of
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.storage.metadata.store import MetadataStore

ACCESS_RULE: Final = "access_rule:"
"""Prefix of the names of properties that are rules."""
RULES_MAX: Final = 100_000
RULES_BYTES_MAX: Final = 64 << 20
"""Bound on the total size of the texts of all rules; one name may have 32 kB."""
CHANGES_MAX: Final = 10_000
"""Bound on the rules that one request may create or remove, as in Kafka."""


FOUND_MAX: Final = 100_000
"""Bound on the rules that all filters of one request may find; a rule counts once per filter."""


class TooManyRulesError(Exception):
    """A change that would exceed a bound, and was not made; the text says which bound."""


class Disk(Protocol):
    """Runs blocking calls on another thread."""

    async def run(self, work: Callable[..., None], *args: object) -> None: ...


class AccessRules:
    """See the module. Used on the event loop's thread only."""

    def __init__(
        self, authorizer: Authorizer, store: MetadataStore, disk: Disk, clock: Clock
    ) -> None:
        self.authorizer = authorizer
        self._store = store
        self._disk = disk
        self._clock = clock
        self._under_way = asyncio.Lock()
        rules = rules_in(store.properties(ACCESS_RULE))
        authorizer.change(added=rules)
        self._bytes = sum(_size(rule) for rule in rules)

    async def find(self, wanted: RuleFilter) -> list[Rule]:
        """The rules that a filter finds, oldest first. Takes several turns of the loop if many."""
        return await self._find(wanted, Slice(self._clock))

    async def _find(self, wanted: RuleFilter, piece: Slice) -> list[Rule]:
        await piece.pause()
        only = wanted.only()
        if only is not None:
            # As tools remove one: it is not looked for among a hundred thousand.
            return [only] if self.authorizer.has(only) else []
        found = []
        for rule in self.authorizer.rules():
            await piece.pause()
            if wanted.finds(rule):
                found.append(rule)
        return found

    async def create(self, rules: Iterable[Rule]) -> None:
        """Add rules; existing ones stay. Raises TooManyRulesError, StorageError."""
        await asyncio.shield(self._create(list(dict.fromkeys(rules))))

    async def delete(self, filters: Sequence[RuleFilter]) -> list[list[Rule]]:
        """Remove the rules that the filters find, all or none; return what each filter found. A
        rule may be found by several filters.

        Raises TooManyRulesError or StorageError; nothing is removed then.
        """
        found: list[list[Rule]] = []
        found_count = 0
        piece = Slice(self._clock)
        for wanted in filters:
            of_filter = await self._find(wanted, piece)
            found_count += len(of_filter)
            if found_count > FOUND_MAX:
                raise TooManyRulesError(f"At most {FOUND_MAX} rules can be found at once.")
            found.append(of_filter)
        await asyncio.shield(self._remove({rule for of_filter in found for rule in of_filter}))
        return found

    async def _create(self, rules: list[Rule]) -> None:
        async with self._under_way:
            new = [rule for rule in rules if not self.authorizer.has(rule)]
            size = sum(_size(rule) for rule in new)
            if len(new) > CHANGES_MAX:
                raise TooManyRulesError(f"At most {CHANGES_MAX} rules can be made at once.")
            if self.authorizer.rule_count + len(new) > RULES_MAX:
                raise TooManyRulesError(f"At most {RULES_MAX} rules can be there at once.")
            if self._bytes + size > RULES_BYTES_MAX:
                raise TooManyRulesError(f"All rules may have at most {RULES_BYTES_MAX} bytes.")
            if new:
                put = dict.fromkeys(map(property_of, new), "")
                await self._disk.run(self._store.set_properties, put)
                self._bytes += size
                self.authorizer.change(added=new)

    async def _remove(self, rules: Collection[Rule]) -> None:
        async with self._under_way:
            # Another request may have removed some of them in the meantime.
            gone = [rule for rule in rules if self.authorizer.has(rule)]
            if len(gone) > CHANGES_MAX:
                raise TooManyRulesError(f"At most {CHANGES_MAX} rules can be removed at once.")
            if gone:
                taken = dict.fromkeys(map(property_of, gone))
                await self._disk.run(self._store.set_properties, taken)
                self._bytes -= sum(_size(rule) for rule in gone)
                self.authorizer.change(removed=gone)


def property_of(rule: Rule) -> str:
    """The name of the property that a rule is kept as; the property has no other content."""
    return ACCESS_RULE + json.dumps(rule)


def rules_in(keys: Iterable[str]) -> list[Rule]:
    """The rules that properties of these names stand for."""
    # All at once: parsing each text by itself takes twice as long.
    texts = ",".join(key.removeprefix(ACCESS_RULE) for key in keys)
    return [rule_of(*parts) for parts in json.loads(f"[{texts}]")]


def _size(rule: Rule) -> int:
    return len(rule.resource_name) + len(rule.principal) + len(rule.host)
