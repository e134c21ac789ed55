from kohort.client.core.topics import GONE_MAX, IDS_MAX, KnownTopics, Leader, TopicInfo
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID

OLD, NEW = b"a" * 16, b"b" * 16


def said(
    *partitions: tuple[int, int],
    topic_id: bytes = OLD,
    name: str = "t",
    error: ErrorCode = ErrorCode.NONE,
) -> TopicInfo:
    """Metadata of each partition's leader (-1: none) and epoch. Only the leader has a replica."""
    return TopicInfo(
        name=name,
        topic_id=topic_id,
        is_internal=False,
        error=error,
        leaders={
            index: Leader(node, epoch) for index, (node, epoch) in enumerate(partitions) if node > 0
        },
        partition_count=len(partitions),
        replicas={index: [node] for index, (node, _) in enumerate(partitions)},
        epochs={index: epoch for index, (_, epoch) in enumerate(partitions)},
    )


def leaders_after(*sayings: TopicInfo) -> dict[int, Leader]:
    known = KnownTopics()
    for one in sayings:
        known.learn([one])
    return dict(known.infos["t"].leaders)


def test_a_leader_of_an_older_epoch_is_not_taken_and_that_of_others_is() -> None:
    found = leaders_after(said((1, 5), (1, 5)), said((2, 4), (2, 6)))
    assert found == {0: (1, 5), 1: (2, 6)}


def test_the_same_epoch_is_taken_and_one_that_is_not_known_too() -> None:
    assert leaders_after(said((1, 5)), said((2, 5))) == {0: (2, 5)}
    assert leaders_after(said((1, 5)), said((2, -1))) == {0: (2, -1)}


def test_an_epoch_without_a_leader_counts() -> None:
    assert leaders_after(said((1, 5)), said((-1, 6)), said((1, 5))) == {}
    assert leaders_after(said((1, 5)), said((-1, 4))) == {0: (1, 5)}


def test_replicas_are_those_of_the_saying_that_the_leader_is_of() -> None:
    known = KnownTopics()
    known.learn([said((1, 5), (1, 5))])
    known.learn([said((2, 4), (2, 6), (3, 0))])
    assert known.infos["t"].replicas == {0: [1], 1: [2], 2: [3]}
    assert known.infos["t"].partition_count == 3


def test_a_topic_that_was_created_again_begins_with_new_epochs() -> None:
    assert leaders_after(said((1, 5)), said((2, 0), topic_id=NEW)) == {0: (2, 0)}


def test_an_id_that_was_replaced_does_not_come_back() -> None:
    old, new = said((1, 5)), said((2, 0), topic_id=NEW)
    gone = said(topic_id=ZERO_UUID, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert leaders_after(old, new, old) == {0: (2, 0)}
    assert leaders_after(old, gone, old) == {0: (1, 5)}
    assert leaders_after(old, new, gone, new) == {0: (2, 0)}


def test_without_ids_epochs_say_nothing_since_it_may_be_another_topic() -> None:
    assert leaders_after(said((1, 5), topic_id=ZERO_UUID), said((2, 0), topic_id=ZERO_UUID)) == {
        0: (2, 0)
    }


def test_a_complete_answer_leaves_out_what_is_gone_but_remembers_its_ids() -> None:
    known = KnownTopics()
    old, new = said((1, 5)), said((2, 0), topic_id=NEW)
    for one in (old, new):
        known.learn([one], is_complete=True)
    known.learn([], is_complete=True)
    assert known.infos == {}
    known.learn([new], is_complete=True)
    known.learn([old], is_complete=True)
    assert known.infos["t"].topic_id == NEW


def test_what_is_remembered_is_bounded() -> None:
    known = KnownTopics()
    for number in range(2 * IDS_MAX):
        known.learn([said((1, 0), topic_id=b"%016d" % number)])
    for number in range(3 * GONE_MAX):
        known.learn([said((1, 0), name=f"gone-{number}")], is_complete=True)
    ids = known._ids
    assert len(ids) <= GONE_MAX + 1
    known.learn([said((1, 0), topic_id=b"%016d" % number) for number in range(2 * IDS_MAX)])
    assert all(len(some) <= IDS_MAX for some in known._ids.values())
