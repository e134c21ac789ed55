"""What a broker says of a group, asked without a client library and without disturbing it."""

import json
import urllib.request
from typing import Any

from kohort.cli.groups.history import why_lines
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.groups import DescribedGroup
from tests.support import messages as m
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

GENERATIONS_MAX = 1_000


class GroupProbe:
    """One group of the broker at `port`. Kohort's history is on its `http_port`."""

    def __init__(self, port: int, group: str, http_port: int | None = None) -> None:
        self.group = group
        self._port = port
        self._http_port = http_port

    def describe(self) -> DescribedGroup:
        with RawClient(self._port) as client:
            request = m.DescribeGroupsRequest(groups=[self.group])
            return client.call(request, 5, m.DescribeGroupsResponse).groups[0]

    def generation(self) -> int:
        """Kafka has no API that tells it, but a heartbeat of any other generation is refused."""
        member = self.describe().members[0]
        with RawClient(self._port) as client:
            for generation in range(GENERATIONS_MAX):
                request = m.HeartbeatRequest(
                    group_id=self.group,
                    generation_id=generation,
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                )
                answer = client.call(request, 3, m.HeartbeatResponse)
                if answer.error_code != ErrorCode.ILLEGAL_GENERATION:
                    assert not answer.error_code, ErrorCode(answer.error_code)
                    return generation
        message = f"no generation below {GENERATIONS_MAX}"
        raise AssertionError(message)

    def wait_stable(self, members: int) -> None:
        """Until that many share an assignment."""

        def is_so() -> bool:
            group = self.describe()
            return group.group_state == "Stable" and len(group.members) == members

        wait_until(is_so, lambda: f"{members} members, stable: {self.describe()}")

    def records(self, *, after: int = 0) -> list[dict[str, Any]]:
        """Kohort's history of the group, oldest first, without what came up to that sequence."""
        records: list[dict[str, Any]] = self._history()["rebalances"]
        return [record for record in records if record["sequence"] > after]

    def wait_records(self, count: int, *, after: int = 0) -> list[dict[str, Any]]:
        """The same, once there are so many: members know a moment before what they have done."""
        wait_until(
            lambda: len(self.records(after=after)) >= count,
            lambda: f"{count} records, of which there are {self.records(after=after)}",
        )
        return self.records(after=after)

    def wait_told(self) -> dict[str, Any]:
        """The newest record of a stable group, once that is about its generation."""
        generation = self.generation()

        def is_told() -> bool:
            records = self.records()
            return bool(records) and (
                (records[-1]["outcome"], records[-1]["generation"]) == ("stable", generation)
            )

        wait_until(is_told, lambda: f"the record of generation {generation}: {self.records()}")
        return self.records()[-1]

    def _history(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._http_port}/groups/{self.group}/rebalances?last=1000"
        with urllib.request.urlopen(url, timeout=30) as answer:
            history: dict[str, Any] = json.load(answer)
        return history

    def why(self, *, after: int = 0) -> str:
        """The text of `kohort groups why`, rebalances that were avoided among it."""
        answer = self._history()
        news = [record for record in answer["rebalances"] if record["sequence"] > after]
        return "\n".join(why_lines({**answer, "rebalances": news}))
