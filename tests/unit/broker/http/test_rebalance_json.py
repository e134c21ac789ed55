"""The sentence beside a record that is not parsed completely is that of the whole record."""

import json

from kohort.broker.http.rebalance_json import with_sentence
from kohort.groups.history.json_form import text_steps
from kohort.groups.history.sentence import sentence
from kohort.groups.steps import at_once
from tests.support.groups.consumer_group import Client, ConsumerGroup, beat


def test_the_sentence_describes_the_members_that_a_consumer_group_waited_for() -> None:
    world = ConsumerGroup()
    world.topics.change("t", 4)
    first, second = Client("a", None, ("t",), client_id="app"), Client("b", None, ("t",))
    beat(world, first)
    world.pass_time(1_000)
    beat(world, second)
    world.pass_time(3_000)
    for client in (first, first, second):
        beat(world, client)
    record = world.rebalances[-1]
    assert "it waited 3 s for the next heartbeat of member a (client.id app)" in sentence(record)
    text = at_once(text_steps(record))
    assert json.loads(with_sentence(text)) == {"sentence": sentence(record), **json.loads(text)}
