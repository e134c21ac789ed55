// Setting a group's offsets: a preview, and its confirmation.

import { path, query } from "./api.js";
import { h } from "./dom.js";
import { count, counted } from "./format.js";
import { field, groupTabs, heading, select, table } from "./parts.js";

const TARGETS = [
  ["earliest", "the first record"],
  ["latest", "the end"],
  ["time", "a time (UTC)"],
  ["offset", "an offset"],
  ["shift", "some offsets forward, or back"],
];

export const reset = {
  title: (id) => `${id}, offsets`,
  path: (id) => `/groups/${encodeURIComponent(id)}/reset`,
  url: ([id]) => path("groups", id),
  concerns: (changed, { params }) => !changed || changed.has(params[0]),
  view,
};

function view(data, context) {
  const { memory } = context;
  const wanted = (memory.wanted ??= { to: "earliest" });
  const set = (name) => (event) => {
    wanted[name] = event.target.value;
    memory.plan = memory.done = memory.failure = null;
    context.show();
  };
  const topics = [...new Set(data.partitions.map((partition) => partition.topic))];
  return [
    heading("Groups", data.group),
    groupTabs(data.group, "Reset offsets"),
    data.member_count > 0 && h("p", { class: "failure" }, `The group has ${counted(data.member_count, "member")}. Stop them first: offsets can be set only while a group is empty.`),
    h(
      "form",
      { class: "filters", submit: (event) => preview(event, data.group, wanted, context) },
      select("Topic", [["", "all with offsets"], ...topics.map((topic) => [topic, topic])], wanted.topic ?? "", set("topic")),
      wanted.topic && field("Partition", { type: "number", min: "0", placeholder: "all", value: wanted.partition ?? "", change: set("partition") }),
      select("Continue at", TARGETS, wanted.to, set("to")),
      (wanted.to === "offset" || wanted.to === "shift") && field("Number", { type: "number", value: wanted.at ?? "", required: true, change: set("at") }),
      wanted.to === "time" && field("Time", { type: "datetime-local", step: "1", value: wanted.time ?? "", required: true, change: set("time") }),
      h("button", { type: "submit" }, "Preview"),
    ),
    h("div", { role: "status" }, memory.failure && h("p", { class: "failure" }, `${memory.failure}.`), memory.done && h("p", { class: "headline" }, `Done: ${counted(memory.done, "offset")} set.`)),
    memory.plan && plan(memory.plan, data, context),
  ];
}

function plan(found, data, context) {
  const changes = found.moves.filter((move) => move.before !== move.after);
  const columns = [
    ["Partition", "id", (move) => `${move.topic}-${move.partition}`],
    ["Now", "number", (move) => count(move.before)],
    ["Then", "number", (move) => count(move.after)],
    ["Change", "number", (move) => change(move)],
    ["Lag then", "number", (move) => count(move.end - move.after)],
  ];
  const again = changes.reduce((sum, move) => sum + Math.max((move.before ?? move.after) - move.after, 0), 0);
  const skipped = changes.reduce((sum, move) => sum + Math.max(move.after - (move.before ?? move.after), 0), 0);
  return h(
    "section",
    { "aria-labelledby": "preview" },
    h("h2", { id: "preview" }, "Preview"),
    h("p", { class: "headline" }, `${counted(changes.length, "offset")} of ${count(found.moves.length)} change: up to ${counted(again, "record")} will be read again, up to ${count(skipped)} skipped.`),
    table("Offsets", columns, found.moves, (move) => `${move.topic}-${move.partition}`),
    h("p", null, h("button", { type: "button", class: "danger", disabled: data.member_count > 0, click: () => execute(found, context) }, `Set ${counted(found.moves.length, "offset")} of ${found.group}`)),
  );
}

function change({ before, after }) {
  if (before === null) return "new";
  if (before === after) return "–";
  return `${after > before ? "+" : "−"}${count(Math.abs(after - before))}`;
}

async function preview(event, group, { to, at, time, topic, partition }, context) {
  event.preventDefault();
  const number = to === "time" ? Date.parse(`${time}Z`) : at;
  await attempt(context, async (memory) => {
    memory.plan = await context.ask(path("groups", group, "reset") + query({ to, at: number, topic, partition }));
  });
}

async function execute({ group, token }, context) {
  await attempt(context, async (memory) => {
    memory.plan = null;
    const done = await context.ask(path("groups", group, "reset"), { method: "POST", headers: { "Kohort-Confirm": token } });
    memory.done = done.set;
  });
  context.refresh();
}

async function attempt(context, work) {
  const { memory } = context;
  memory.done = memory.failure = null;
  try {
    await work(memory);
  } catch (error) {
    memory.failure = error.message;
  }
  context.show();
}
