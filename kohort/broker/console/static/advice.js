// The output of `kohort groups advise`: settings with which the group would have rebalanced less.

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

/** The section of the page. It starts with a button, because the broker needs some seconds for the advice. */
export function advice(group, context) {
  const memory = (context.memory.advice ??= { state: "none" });
  const isBusy = memory.state === "asked";
  return h(
    "section",
    { "aria-labelledby": "advice" },
    h("h2", { id: "advice" }, "Advice"),
    h("p", null, "Replays the group's recorded history with other settings, by the coordinator's own rules."),
    h("p", null, h("button", { type: "button", disabled: isBusy, click: () => compute(group, memory, context) }, isBusy ? "Computing …" : "Compute advice")),
    h("div", { role: "status" }, memory.state === "failed" && h("p", { class: "failure" }, `${memory.text}.`), memory.state === "done" && result(memory.data)),
  );
}

async function compute(group, memory, context) {
  memory.state = "asked";
  context.show();
  try {
    memory.data = await context.ask(path("groups", group, "advice"));
    memory.state = "done";
  } catch (error) {
    memory.state = "failed";
    memory.text = error.message;
  }
  context.show();
}

function result(data) {
  if (!data.recorded) return h("p", null, "The history has no rebalance of this group.");
  const row = (changes, choice, isBest) => ({ changes, isBest, ...choice });
  const rows = [row("as recorded", data.recorded, false), ...data.choices.map((choice) => row(choice.changes, choice, choice.is_best))];
  const columns = [
    ["Setting", "", (row) => [row.isBest && h("span", { class: "tag" }, "best"), row.changes]],
    ["Rebalances", "number", (row) => (Number.isInteger(row.rebalances) ? row.rebalances : row.rebalances.toFixed(1))],
    ["Stopped", "number", (row) => duration(row.stopped_ms)],
    ["No reader", "number", (row) => duration(row.unread_ms)],
    ["Crash detected after", "number", (row) => duration(row.notice_ms)],
  ];
  const best = data.choices.find((choice) => choice.is_best);
  const { history } = data;
  return [
    h("p", null, `${counted(history.rebalances, "rebalance")} in ${duration(history.until_ms - history.from_ms)}.`),
    table("Settings that were tried", columns, rows, (row) => row.changes),
    !data.choices.length && h("p", null, `None of the settings that ${data.unranked.length ? "could be ranked" : "were tried"} would have been better than the recorded ones.`),
    h("p", { class: "muted" }, data.check),
    data.unranked.map((line) => h("p", { class: "muted" }, line)),
    data.unknown.map((line) => h("p", { class: "muted" }, `Unknown: ${line}`)),
    best && settings(best),
  ];
}

function settings(best) {
  return [
    h("h3", null, `Configuration for “${best.changes}”`),
    Object.entries(best.config).map(([client, lines]) => [h("h4", null, NAMES[client] ?? client), h("pre", { tabindex: "0" }, lines.join("\n"))]),
  ];
}
