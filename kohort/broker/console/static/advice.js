// What `kohort groups advise` says: settings that would have spared the group rebalances.

import { path } from "./api.js";
import { h } from "./dom.js";
import { counted, duration } from "./format.js";
import { table } from "./parts.js";

const NAMES = {
  java: "Java (properties of the consumer)",
  librdkafka: "librdkafka (properties of the consumer)",
  aiokafka: "aiokafka (arguments of AIOKafkaConsumer)",
  kohort: "kohort (arguments of Consumer)",
  broker: "the broker (server.properties)",
};

/** The section: a button first, for the broker works on it for some seconds. */
export function advice(group, context) {
  const memory = (context.memory.advice ??= { state: "none" });
  const isBusy = memory.state === "asked";
  return h(
    "section",
    { "aria-labelledby": "advice" },
    h("h2", { id: "advice" }, "Advice"),
    h("p", null, "Plays the group's recorded life again under other settings, by the coordinator's own rules."),
    h("p", null, h("button", { type: "button", disabled: isBusy, click: () => work(group, memory, context) }, isBusy ? "At work …" : "Work it out")),
    h("div", { role: "status" }, memory.state === "failed" && h("p", { class: "failure" }, `${memory.text}.`), memory.state === "told" && told(memory.data)),
  );
}

async function work(group, memory, context) {
  memory.state = "asked";
  context.show();
  try {
    memory.data = await context.ask(path("groups", group, "advice"));
    memory.state = "told";
  } catch (error) {
    memory.state = "failed";
    memory.text = error.message;
  }
  context.show();
}

function told(data) {
  if (!data.recorded) return h("p", null, "It has not rebalanced, as far as its history goes back.");
  const row = (changes, one, isBest) => ({ changes, isBest, ...one });
  const rows = [row("as recorded", data.recorded, false), ...data.choices.map((one) => row(one.changes, one, one.is_best))];
  const columns = [
    ["Setting", "", (one) => [one.isBest && h("span", { class: "tag" }, "best"), one.changes]],
    ["Rebalances", "number", (one) => (Number.isInteger(one.rebalances) ? one.rebalances : one.rebalances.toFixed(1))],
    ["Stopped", "number", (one) => duration(one.stopped_ms)],
    ["Unread", "number", (one) => duration(one.unread_ms)],
    ["Crash noticed after", "number", (one) => duration(one.notice_ms)],
  ];
  const best = data.choices.find((one) => one.is_best);
  const { history } = data;
  return [
    h("p", null, `${counted(history.rebalances, "rebalance")} in ${duration(history.until_ms - history.from_ms)}.`),
    table("Settings that were tried", columns, rows, (one) => one.changes),
    !data.choices.length && h("p", null, `Nothing that ${data.unranked.length ? "could be ranked" : "was tried"} would have been better than the recorded settings.`),
    h("p", { class: "muted" }, data.check),
    data.unranked.map((line) => h("p", { class: "muted" }, line)),
    data.unknown.map((line) => h("p", { class: "muted" }, `Not known: ${line}`)),
    best && settings(best),
  ];
}

function settings(best) {
  return [
    h("h3", null, `What to set for “${best.changes}”`),
    Object.entries(best.config).map(([whom, lines]) => [h("h4", null, NAMES[whom] ?? whom), h("pre", { tabindex: "0" }, lines.join("\n"))]),
  ];
}
