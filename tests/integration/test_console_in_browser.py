"""The console in a real browser: what is shown, what hostile names cannot do, by keyboard too."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final
from urllib.parse import quote

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kohort.groups.requests import CommitRequest, OffsetToCommit
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.browser import Browser
from tests.support.contrast import TEXT, hexadecimal, ratio
from tests.support.groups.group_probe import GroupProbe
from tests.support.groups.raw_members import RawMember, bring_together, settle
from tests.support.share.share_member import share_member

HOSTILE: Final = (
    "<img src=x onerror=\"document.title='hacked'\">",
    "</a><script>document.title='hacked'</script>&amp;",
    "\u202eright to left\u0007 " + "x" * 270,
)
CLIENT: Final = "<svg onload=\"document.title='hacked'\">"

VALUES: Final = (
    b'{"id":12345678901234567890}',
    "plain ä".encode(),
    b"\x00\xffA",
    HOSTILE[0].encode(),
)
"""JSON, text, neither, and markup."""

PAGES: Final = {
    "groups": "#/groups",
    "group": "#/groups/readers",
    "timeline": "#/groups/readers/timeline/2",
    "checks": "#/checks",
    "topics": "#/topics",
    "topic": "#/topics/t",
    "records": "#/topics/t/records",
    "reset": "#/groups/readers/reset",
    "transactions": "#/transactions",
    "broker": "#/broker",
    "hostile": f"#/groups/{quote(HOSTILE[0])}",
}

_TEXTS: Final = """(() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (const one of document.querySelectorAll("details")) one.open = true;
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    const area = parent.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || area.width < 2 || area.height < 2) continue;
    if (parent.closest(".skip, .hidden, noscript")) continue;
    const style = getComputedStyle(parent), drawn = parent.closest("svg");
    let ground = "rgba(0, 0, 0, 0)";
    for (let up = parent; up && ground === "rgba(0, 0, 0, 0)"; up = up.parentElement)
      ground = getComputedStyle(up).backgroundColor;
    const colour = drawn ? style.fill : style.color;
    found.push({ text: walker.currentNode.data.slice(0, 40), colour, ground,
      size: parseFloat(style.fontSize), right: area.right, scrolls: !!parent.closest("pre") });
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """With a group that has rebalanced twice and others whose names are markup."""
    settings = {
        "kohort.console.port": str(free_port()),
        "kohort.console.write": "true",
        "num.partitions": "3",
    }
    with BrokerThread(tmp_path_factory.mktemp("broker"), overrides=settings) as thread:
        asyncio.run(_fill(f"127.0.0.1:{thread.port}"))
        for group in HOSTILE[1:]:
            thread.call(partial(_commit, thread, group))
        leader, follower = RawMember(thread.port, "readers"), RawMember(thread.port, "readers")
        bring_together(GroupProbe(thread.port, "readers"), leader, follower)
        settle(leader, follower)
        yield thread


async def _fill(bootstrap: str) -> None:
    """Records, of which the first of the hostile groups has read one."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(6):
            await producer.send_and_wait("t", b"v", partition=number % 3)
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=bootstrap,
        group_id=HOSTILE[0],
        client_id=CLIENT,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    await consumer.getone()
    await consumer.commit()
    await consumer.stop()


def _commit(broker: BrokerThread, group: str) -> None:
    """A position from outside of any membership, which makes the group."""
    request = CommitRequest((OffsetToCommit("t", 0, 1),))
    broker.broker.services.groups.commit(group, request, may_answer_group_not_found=True)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as one:
        yield one


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    chromium.problems.clear()
    chromium.size(1024)
    chromium.theme("light")
    return chromium


def show(browser: Browser, broker: BrokerThread, page: str) -> None:
    port = broker.broker.config.kohort_console_port
    browser.open(f"http://127.0.0.1:{port}/{PAGES.get(page, page)}")
    browser.wait("document.querySelector('main h1')")


async def _join_share_group(bootstrap: str, group: str) -> None:
    async with share_member(bootstrap, group, "t"):
        pass  # The member stays until its session expires.


def test_a_share_group_has_assignments(broker: BrokerThread, browser: Browser) -> None:
    asyncio.run(_join_share_group(f"127.0.0.1:{broker.port}", "sharers"))
    for page, title in (("", "Assignments, last hour"), ("/timeline", "Assignments, newest first")):
        show(browser, broker, f"#/groups/sharers{page}")
        browser.wait(f"document.querySelector('main').innerText.includes({title!r})")
        assert "ebalance" not in browser.text("main")


def test_names_of_clients_are_text_on_every_page(broker: BrokerThread, browser: Browser) -> None:
    for page in PAGES:
        show(browser, broker, page)
        assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert browser.evaluate("document.title") != "hacked"
    # The last one is that of the first hostile group.
    assert browser.text("h1") == HOSTILE[0]
    show(browser, broker, "groups")
    text = browser.text("main")
    assert all(name in text for name in HOSTILE[:2])
    # What cannot be seen, or turns the text around it, is written out.
    assert "\\u202eright to left\\u0007" in text
    # Nothing failed, and the policy had nothing to refuse.
    assert browser.problems == []


def test_whom_a_group_waits_for_appears_and_goes_while_one_looks(
    broker: BrokerThread, browser: Browser
) -> None:
    first, second = RawMember(broker.port, "live"), RawMember(broker.port, "live")
    assert not first.arrive().answer().error_code
    show(browser, broker, "#/groups/live")
    browser.wait("document.getElementById('live').textContent === 'live'")
    assert browser.text(".waiting h2") == "Current rebalance"
    assert not first.sync({first.member_id: b""}).error_code
    browser.wait("!document.querySelector('.waiting')")
    waits = second.arrive()
    browser.wait("document.querySelector('.waiting .awaited')")
    named = browser.evaluate("document.querySelector('.waiting .awaited .id').title")
    assert named == first.member_id
    assert "to join again" in browser.text(".waiting .headline")
    ticking = browser.text(".waiting [data-since]")
    browser.wait(f"document.querySelector('.waiting [data-since]').innerText !== {ticking!r}")
    assert not first.join().answer().error_code
    assert not waits.answer().error_code
    browser.wait("/the leader computes/.test(document.querySelector('.waiting').innerText)")
    settle(first, second)
    browser.wait("!document.querySelector('.waiting')")
    browser.wait("document.querySelectorAll('#members + table tbody tr').length === 2")
    assert browser.problems == []


def test_a_page_asks_at_once_when_something_has_happened(
    broker: BrokerThread, browser: Browser
) -> None:
    first = RawMember(broker.port, "prompt")
    assert not first.arrive().answer().error_code
    show(browser, broker, "#/groups/prompt")
    browser.wait("document.getElementById('live').textContent === 'live'")
    assert not first.sync({first.member_id: b""}).error_code
    browser.wait("!document.querySelector('.waiting')")
    browser.evaluate(_DELAYS)
    second = RawMember(broker.port, "prompt")
    waits = second.arrive()
    browser.wait("document.querySelector('.waiting')")
    # It has not waited a fixed time, in case more happens: if at all, until it may ask again.
    assert 50 not in browser.evaluate("delays")
    assert not first.join().answer().error_code
    assert not waits.answer().error_code


_DELAYS: Final = """(() => {
  window.delays = [];
  const plain = window.setTimeout;
  window.setTimeout = (work, ms) => { delays.push(ms); return plain(work, ms); };
})()"""


def test_a_record_is_shown_as_what_it_is(broker: BrokerThread, browser: Browser) -> None:
    for value in VALUES:
        partition = broker.broker.services.topics.partition("t", 2)
        assert partition is not None
        batch = encode_batch([Record(value, b"key")])
        broker.call(partial(partition.append, batch, read_header(batch), wall_ms=0))
    show(browser, broker, "#/topics/t/records?partition=2&limit=10&from=oldest")
    shown = []
    for place in range(2, 2 + len(VALUES)):
        summary = f"document.querySelectorAll('.records summary')[{place}]"
        browser.evaluate(f"{summary}.click()")
        browser.wait(f"{summary}.parentElement.querySelectorAll('pre').length === 2")
        shown.append(
            browser.evaluate(f"{summary}.parentElement.querySelectorAll('pre')[1].innerText")
        )
    json, text, binary, markup = shown
    # A number is as it was written, though it is too large for JavaScript.
    assert json == '{\n  "id": 12345678901234567890\n}'
    assert text == "plain ä"
    assert binary.startswith("000000  00 ff 41")
    assert markup == HOSTILE[0]
    assert browser.problems == []


def test_offsets_are_set_after_a_preview_and_its_confirmation(
    broker: BrokerThread, browser: Browser
) -> None:
    broker.call(partial(_commit, broker, "done"))
    show(browser, broker, "#/groups/done/reset")
    assert browser.text(".tabs [aria-current]") == "Reset offsets"
    browser.evaluate("document.querySelector('main button[type=submit]').click()")
    browser.wait("document.querySelector('#preview')")
    assert "1 offset of 1 change: up to 1 record will be read again" in browser.text(".headline")
    browser.evaluate("document.querySelector('button.danger').click()")
    browser.wait("/Done: 1 offset set/.test(document.querySelector('main').innerText)")
    committed = broker.broker.services.groups.committed("done", "t", 0)
    assert committed is not None
    assert committed.offset == 0
    # A group with members has a preview, but no confirmation.
    show(browser, broker, "reset")
    assert "Stop them first" in browser.text("main .failure")
    assert browser.problems == []


def test_it_can_be_used_by_keyboard(broker: BrokerThread, browser: Browser) -> None:
    show(browser, broker, "groups")
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    browser.evaluate("document.querySelector('input[type=search]').focus()")
    browser.type("reader")
    browser.wait("document.querySelectorAll('tbody tr').length === 1")
    # The page was rendered again around it.
    assert browser.evaluate("document.activeElement.value") == "reader"
    for _ in range(2):
        browser.press("Tab")
    assert browser.evaluate("document.activeElement.innerText").startswith("Group")
    browser.press("Enter")
    browser.wait("document.querySelector('th[aria-sort=ascending]')")
    assert browser.evaluate("document.activeElement.className") == "sort"
    for _ in range(4):
        browser.press("Tab")
    assert browser.evaluate("document.activeElement.innerText") == "readers"
    browser.press("Enter")
    browser.wait("document.querySelector('#members')")
    assert browser.evaluate("location.hash") == "#/groups/readers"
    assert browser.problems == []


def check_can_be_read(browser: Browser, width: int, theme: str) -> None:
    """Nothing has to be moved aside, and all text has the contrast of WCAG AA."""
    found = browser.evaluate(_TEXTS)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    outside = [one for one in found if one["right"] > width + 1 and not one["scrolls"]]
    assert not outside, outside[:3]
    assert len(found) > 10
    for one in found:
        assert one["size"] >= 12, one
        assert ratio(hexadecimal(one["colour"]), hexadecimal(one["ground"])) >= TEXT, one
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(18, 24, 30)") == (theme == "dark")


@pytest.mark.parametrize(
    ("page", "width", "theme"),
    [("groups", 1024, "light"), ("hostile", 320, "dark"), ("timeline", 390, "light")],
)
def test_pages_fit_and_can_be_read(
    broker: BrokerThread, browser: Browser, page: str, width: int, theme: str
) -> None:
    browser.size(width, is_phone=width < 500)
    browser.theme(theme)
    show(browser, broker, page)
    check_can_be_read(browser, width, theme)


@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390, 320])
@pytest.mark.parametrize("page", PAGES)
def test_every_page_fits_everywhere_and_can_be_read(
    broker: BrokerThread, browser: Browser, page: str, width: int, theme: str
) -> None:
    test_pages_fit_and_can_be_read(broker, browser, page, width, theme)


def test_a_rebalance_is_drawn_with_a_bar_for_each_member(
    broker: BrokerThread, browser: Browser
) -> None:
    show(browser, broker, "timeline")
    browser.wait("document.querySelector('.waterfall')")
    assert browser.evaluate("document.querySelectorAll('.waterfall > li').length") == 2
    assert browser.evaluate("document.querySelectorAll('.axis .mark').length") >= 2
    told = browser.text(".record .headline")
    assert "generation 1 → 2, because member" in told
    click = "dispatchEvent(new MouseEvent('click'))"
    browser.evaluate(f"document.querySelector('.axis .mark[data-key=\"1\"]').{click}")
    browser.wait("document.querySelector('#record').innerText === 'Rebalance 1'")


def test_processes_that_are_exchanged_are_marked_as_a_deploy(
    broker: BrokerThread, browser: Browser
) -> None:
    first, second = (RawMember(broker.port, "rolled", instance_id=one) for one in ("a", "b"))
    bring_together(GroupProbe(broker.port, "rolled"), first, second)
    settle(first, second)
    show(browser, broker, "#/groups/rolled/timeline")
    browser.wait("document.querySelector('.axis .mark')")
    assert not browser.evaluate("document.querySelectorAll('.axis .deploy').length")
    for one in ("a", "b"):
        again = RawMember(broker.port, "rolled", instance_id=one)
        assert not again.join().answer().error_code
    browser.wait("document.querySelectorAll('.axis .deploy').length === 1")
    told = browser.evaluate("document.querySelector('.axis .deploy title').textContent")
    assert "rolling restart of 2 members" in told
    assert "1 deploy" in browser.evaluate(
        "document.querySelector('.axis').getAttribute('aria-label')"
    )
    # Its rebalances are one row, which opens.
    rows = "document.querySelectorAll('tbody tr').length"
    folded = browser.evaluate(rows)
    browser.evaluate("document.querySelector('.disclosure').click()")
    assert browser.evaluate(rows) > folded
    assert browser.evaluate("document.querySelector('.disclosure').ariaExpanded") == "true"
    assert browser.problems == []


def test_a_first_look_is_below_sixty_kilobytes_and_a_second_one_needs_hardly_any(
    broker: BrokerThread, browser: Browser
) -> None:
    browser.command("Network.clearBrowserCache")
    browser.transferred_bytes = 0
    show(browser, broker, "groups")
    first_bytes = browser.transferred_bytes
    show(browser, broker, "groups")
    assert 10_000 < first_bytes < 60_000
    assert browser.transferred_bytes - first_bytes < first_bytes / 2


@pytest.mark.long
def test_advice_is_worked_out_at_the_press_of_a_button(
    broker: BrokerThread, browser: Browser
) -> None:
    show(browser, broker, "group")
    browser.evaluate("document.querySelector('#advice ~ p button').click()")
    browser.wait("document.querySelector('#advice ~ p button').disabled")
    browser.wait("/as recorded/.test(document.querySelector('#advice').parentNode.innerText)")
    assert browser.problems == []
