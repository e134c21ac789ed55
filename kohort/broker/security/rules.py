"""The access rules: stored in the metadata store, applied by the authorizer.

A change is stored in both copies of the metadata store, and forced to disk, before the authorizer
applies it and before the request is answered. Therefore an acknowledged change survives a crash,
and applies to the next request of every connection.
"""

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
"""Name prefix of the properties that are rules."""
RULES_MAX: Final = 100_000
RULES_BYTES_MAX: Final = 64 << 20
"""Maximum total size of all rules; one name may have 32 kB."""
CHANGES_MAX: Final = 10_000
"""Maximum rules that one request may create or remove, as in Kafka."""
MATCHES_MAX: Final = 100_000
"""Maximum matches of all filters of one request; a rule counts once per filter."""


class TooManyRulesError(Exception):
    """A rejected change; the text names the limit that it would exceed."""


class Disk(Protocol):
    async def run(self, work: Callable[..., None], *args: object) -> None: ...


class AccessRules:
    """The access rules. For the event loop's thread only."""

    def __init__(
        self, authorizer: Authorizer, store: MetadataStore, disk: Disk, clock: Clock
    ) -> None:
        self.authorizer = authorizer
        self._store = store
        self._disk = disk
        self._clock = clock
        self._lock = asyncio.Lock()
        rules = rules_in(store.properties(ACCESS_RULE))
        authorizer.change(added=rules)
        self._bytes = sum(_size(rule) for rule in rules)

    async def find(self, rule_filter: RuleFilter) -> list[Rule]:
        """Return the rules that match a filter, oldest first; a long search takes several event
        loop iterations.
        """
        return await self._find(rule_filter, Slice(self._clock))

    async def _find(self, rule_filter: RuleFilter, time_slice: Slice) -> list[Rule]:
        await time_slice.pause()
        only = rule_filter.only()
        if only is not None:
            # Tools remove a rule by an exact filter, which needs no search.
            return [only] if self.authorizer.has(only) else []
        matches = []
        for rule in self.authorizer.rules():
            await time_slice.pause()
            if rule_filter.finds(rule):
                matches.append(rule)
        return matches

    async def create(self, rules: Iterable[Rule]) -> None:
        """Add rules; existing ones stay. Raises TooManyRulesError, StorageError."""
        await asyncio.shield(self._create(list(dict.fromkeys(rules))))

    async def delete(self, filters: Sequence[RuleFilter]) -> list[list[Rule]]:
        """Remove the rules that match the filters, all or none; return the matches of each filter.
        A rule may match several filters.

        Raises TooManyRulesError or StorageError; nothing is removed then.
        """
        matches: list[list[Rule]] = []
        match_count = 0
        time_slice = Slice(self._clock)
        for rule_filter in filters:
            rules = await self._find(rule_filter, time_slice)
            match_count += len(rules)
            if match_count > MATCHES_MAX:
                raise TooManyRulesError(f"At most {MATCHES_MAX} rules can be found at once.")
            matches.append(rules)
        await asyncio.shield(self._remove({rule for rules in matches for rule in rules}))
        return matches

    async def _create(self, rules: list[Rule]) -> None:
        async with self._lock:
            new = [rule for rule in rules if not self.authorizer.has(rule)]
            size = sum(_size(rule) for rule in new)
            if len(new) > CHANGES_MAX:
                raise TooManyRulesError(f"At most {CHANGES_MAX} rules can be created at once.")
            if self.authorizer.rule_count + len(new) > RULES_MAX:
                raise TooManyRulesError(f"At most {RULES_MAX} rules can exist.")
            if self._bytes + size > RULES_BYTES_MAX:
                raise TooManyRulesError(f"All rules may have at most {RULES_BYTES_MAX} bytes.")
            if new:
                put = dict.fromkeys(map(property_of, new), "")
                await self._disk.run(self._store.set_properties, put)
                self._bytes += size
                self.authorizer.change(added=new)

    async def _remove(self, rules: Collection[Rule]) -> None:
        async with self._lock:
            # Another request may have removed some of them in the meantime.
            removed = [rule for rule in rules if self.authorizer.has(rule)]
            if len(removed) > CHANGES_MAX:
                raise TooManyRulesError(f"At most {CHANGES_MAX} rules can be removed at once.")
            if removed:
                changes = dict.fromkeys(map(property_of, removed))
                await self._disk.run(self._store.set_properties, changes)
                self._bytes -= sum(_size(rule) for rule in removed)
                self.authorizer.change(removed=removed)


def property_of(rule: Rule) -> str:
    """Return the name of the property that stores a rule; the property's value is empty."""
    return ACCESS_RULE + json.dumps(rule)


def rules_in(keys: Iterable[str]) -> list[Rule]:
    # All rules are parsed as one JSON array: one by one, parsing takes twice as long.
    texts = ",".join(key.removeprefix(ACCESS_RULE) for key in keys)
    return [rule_of(*parts) for parts in json.loads(f"[{texts}]")]


def _size(rule: Rule) -> int:
    return len(rule.resource_name) + len(rule.principal) + len(rule.host)
