"""A share group under virtual time, with its log."""

from kohort.groups.config import GroupConfig
from kohort.groups.effects import Append, Cancel, Note, Reply, Schedule, TimerKey
from kohort.groups.encoding import decode, encode_headers, encode_key, encode_value, types_of_kind
from kohort.groups.events import Event
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberAccount
from kohort.groups.member_sessions import HeartbeatResult
from kohort.groups.records import DurableRecord, RecordHeaders
from kohort.groups.requests import Now
from kohort.groups.share.data import ShareSettings, ShareState
from kohort.groups.share.membership import ShareMembership
from kohort.groups.share.requests import ShareHeartbeatRequest
from kohort.groups.steps import at_once
from kohort.protocol.errors import ErrorCode
from tests.support.groups.consumer_group import Topics


class ShareGroup:
    """One group and its log. Replaying the log after each append gives the present state."""

    def __init__(self, settings: ShareSettings) -> None:
        self.settings = settings
        self.topics = Topics()
        self.now = Now(1_000, 1_000_000)
        self.account = MemberAccount()
        self.log: dict[bytes, tuple[bytes | None, RecordHeaders]] = {}
        self.appended: list[tuple[DurableRecord, ...]] = []
        self.timers: dict[TimerKey, int] = {}
        self.answers: list[object] = []
        self.events: list[Event] = []
        self.group = self.new_group()

    def append_fails(self) -> bool:
        """Whether the next append fails; overridden."""
        return False

    def new_group(self) -> Group:
        self.account = MemberAccount()
        restorers = dict.fromkeys(types_of_kind(GroupKind.SHARE), self.new_membership)
        return Group("g", GroupConfig(), restorers)

    def new_membership(self, group: Group) -> ShareMembership:
        return ShareMembership(group, self.topics, lambda _: self.settings, self.account)

    @property
    def membership(self) -> ShareMembership:
        membership = self.group.membership
        assert isinstance(membership, ShareMembership)
        return membership

    @property
    def state(self) -> ShareState:
        return self.membership.data.state

    def run(self) -> object:
        """Carry out the effects; return the last answer."""
        while True:
            append = None
            for effect in self.group.take_effects():
                match effect:
                    case Append():
                        append = effect
                    case Schedule(key=key, deadline_ms=deadline_ms):
                        self.timers[key] = deadline_ms
                    case Cancel(key=key):
                        self.timers.pop(key, None)
                    case Reply(body=body):
                        self.answers.append(body)
                    case Note(event=event):
                        self.events.append(event)
            if append is None:
                return self.answers[-1] if self.answers else None
            if self.append_fails():
                self.group.on_append_failed(ErrorCode.NOT_ENOUGH_REPLICAS, self.now)
                continue
            self.appended.append(append.records)
            for record in append.records:
                stored_key, value = encode_key(record), encode_value(record)
                if value is None:
                    self.log.pop(stored_key, None)
                else:
                    self.log[stored_key] = (value, encode_headers(record))
            self.group.on_appended(self.now)
            self.check_replay()

    def replayed(self) -> ShareState:
        """Return the state that the log gives, in another order than that of the appends."""
        state = ShareState()
        for key, (value, headers) in reversed(self.log.items()):
            record = decode(key, value, headers)
            assert record is not None
            state.apply(record)
        return state

    def check_replay(self) -> None:
        if not self.group.is_dead:
            present = self.state.copy()
            for member_id, member in present.members.items():
                present.members[member_id] = member._replace(client_software="")
            assert self.replayed() == present

    def restart(self) -> None:
        """Replace the group by the one that the log gives."""
        self.timers.clear()
        records = [decode(key, *stored) for key, stored in self.log.items()]
        self.group = self.new_group()
        self.group.restore([record for record in records if record is not None], self.now)
        self.run()

    def heartbeat(self, request: ShareHeartbeatRequest) -> HeartbeatResult:
        membership = self.group.membership
        result: object = None
        if membership is None:
            new = self.new_membership(self.group)
            at_once(new.heartbeat(request, "ticket", self.now, begins=self.group))
        else:
            result = self.membership.answer_at_once(request, self.now.ms)
            if result is None:
                at_once(self.membership.heartbeat(request, "ticket", self.now))
        answer = self.run()
        result = result or answer
        assert isinstance(result, HeartbeatResult)
        return result

    def join(self, member_id: str, *names: str) -> HeartbeatResult:
        return self.heartbeat(ShareHeartbeatRequest(member_id, 0, topic_names=names))

    def beat(self, member_id: str) -> HeartbeatResult:
        """Send the heartbeat of a member that states nothing."""
        return self.heartbeat(ShareHeartbeatRequest(member_id, self.state.members[member_id].epoch))

    def leave(self, member_id: str) -> HeartbeatResult:
        return self.heartbeat(ShareHeartbeatRequest(member_id, -1))

    def change_topic(self, name: str, count: int) -> None:
        """Create a topic, add partitions to it, or delete it if `count` is 0."""
        self.topics.change(name, count)
        self.group.forget_lost_topics(self.now)
        self.run()

    def pass_time(self, ms: int) -> None:
        self.now = Now(self.now.ms + ms, self.now.wall_ms + ms)
        while due := sorted(key for key, at_ms in self.timers.items() if at_ms <= self.now.ms):
            for key in due:
                del self.timers[key]
            self.group.on_deadlines(due, self.now)
            self.run()
