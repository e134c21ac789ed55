// One group: whom it waits for, what it did last, its members and where they are.

import { path } from "./api.js";
import { h } from "./dom.js";
import { count, counted, duration } from "./format.js";
import { advice } from "./advice.js";
import { age, figures, findingList, groupTabs, moment, since, sparkline, stateMark, table, to, until } from "./parts.js";

export const group = {
  title: (id) => id,
  path: (id) => `/groups/${encodeURIComponent(id)}`,
  url: ([id]) => path("groups", id),
  concerns: (changed, { params }) => !changed || changed.has(params[0]),
  every: 3000,
  view,
};

const PHASES = {
  initial_delay: "The first members have come; it waits for more.",
  join: "Partitions are given up, and members join again.",
  assign: "All have joined; the leader works out the assignment.",
  store: "The assignment is being stored.",
  sync: "Members fetch their assignment.",
};

function view(data, context) {
  return [
    h("h1", { class: "id" }, data.group),
    groupTabs(data.group, "Now"),
    figures([
      ["State", stateMark(data.state)],
      ["Generation", count(data.generation)],
      ["Members", count(data.member_count)],
      ["Lag", count(data.lag)],
      ["Behind", age(data.lag_ms)],
      ["Assignor", data.protocol ?? "–"],
      ["Last hour", sparkline(data.last_hour)],
    ]),
    waiting(data),
    data.findings.length > 0 && h("section", { "aria-label": "Checks" }, findingList(data.findings)),
    last(data),
    members(data),
    partitions(data),
    advice(data.group, context),
  ];
}

function waiting({ waiting: told }) {
  if (!told) return null;
  const left = told.member_count - told.members.length;
  return h(
    "section",
    { class: "waiting", "aria-labelledby": "waiting" },
    h("h2", { id: "waiting" }, "Right now"),
    h("p", { class: "headline" }, `It waits ${told.text}.`),
    h("p", null, "Since ", since(told.since_ms), told.until_ms !== null && [", for ", until(told.until_ms), " more at most"], `. ${PHASES[told.phase] ?? ""}`),
    told.members.length > 0 &&
      h(
        "ul",
        { class: "awaited" },
        told.members.map((one) =>
          h(
            "li",
            { "data-key": one.member_id },
            h("span", { class: "id" }, one.instance_id ?? one.member_id),
            h("span", { class: "muted" }, ` ${[one.instance_id && one.member_id, one.host?.replace(/^\//, "")].filter(Boolean).join(", ")}`),
          ),
        ),
        left > 0 && h("li", { class: "muted" }, `and ${counted(left, "more member")}`),
      ),
    told.pending_count > 0 && h("p", { class: "muted" }, `${counted(told.pending_count, "member id")} handed out and not used yet.`),
  );
}

function last({ group: id, last: told }) {
  if (!told) return h("p", { class: "muted" }, "It has not rebalanced, as far as its history goes back.");
  return h(
    "section",
    { "aria-labelledby": "last" },
    h("h2", { id: "last" }, told.outcome === "running" ? "The rebalance that runs" : "The last rebalance"),
    h("p", { class: "headline" }, `It ${told.sentence}.`, " ", h("span", { class: "muted" }, "(times in UTC)")),
    h("details", null, h("summary", null, "What that rests on"), h("ul", null, told.evidence.map((line) => h("li", null, line)))),
    h("p", null, h("a", { href: to("groups", id, "timeline", told.sequence) }, "Who waited for whom")),
  );
}

function members(data) {
  if (!data.members.length) return h("p", { class: "muted" }, "It has no members.");
  const sums = new Map();
  for (const one of data.partitions)
    if (one.member_id) sums.set(one.member_id, (sums.get(one.member_id) ?? 0) + (one.lag ?? 0));
  const rest = data.member_count - data.members.length;
  const columns = [
    ["Member", "id", (row) => [row.instance_id ?? row.member_id, row.role === "leader" && h("span", { class: "tag" }, "leader"), row.instance_id && h("div", { class: "muted" }, row.member_id)]],
    ["Client", "id", (row) => [row.client_id, h("div", { class: "muted" }, row.host.replace(/^\//, ""))]],
    ["Session", "number", (row) => duration(row.session_timeout_ms)],
    ["Assignors", "", (row) => row.protocols.join(", ")],
    ["Partitions", "", (row) => share(row)],
    ["Lag", "number", (row) => count(sums.get(row.member_id) ?? (row.partition_count === 0 ? 0 : null))],
  ];
  return h(
    "section",
    { "aria-labelledby": "members" },
    h("h2", { id: "members" }, "Members"),
    table("Members", columns, data.members, (row) => row.member_id),
    rest > 0 && h("p", { class: "muted" }, `and ${counted(rest, "more member")}`),
  );
}

function share(row) {
  if (row.assignment === null) return row.assignment_bytes ? `${count(row.assignment_bytes)} bytes` : "–";
  const text = Object.entries(row.assignment).map(([topic, numbers]) => `${topic}: ${ranges(numbers)}`);
  return [h("span", { class: "number" }, counted(row.partition_count, "partition")), text.map((line) => h("div", { class: "muted id" }, line))];
}

/** 0–3, 7, 9–12. */
export function ranges(numbers) {
  const found = [];
  for (const one of numbers) {
    const open = found.at(-1);
    if (open && open[1] === one - 1) open[1] = one;
    else found.push([one, one]);
  }
  return found.map(([first, end]) => (first === end ? first : `${first}–${end}`)).join(", ");
}

function partitions(data) {
  if (!data.partitions.length) return h("p", { class: "muted" }, "It has committed no position.");
  const names = new Map(data.members.map((one) => [one.member_id, one.instance_id ?? one.member_id]));
  const columns = [
    ["Partition", "id", (row) => [h("a", { href: to("topics", row.topic) }, row.topic), `-${row.partition}`]],
    ["Member", "id", (row) => (row.member_id ? (names.get(row.member_id) ?? row.member_id) : "–")],
    ["Committed", "number", (row) => count(row.committed)],
    ["End", "number", (row) => count(row.end)],
    ["Lag", "number", (row) => count(row.lag)],
    ["Behind", "number", (row) => age(row.lag_ms)],
    ["Last commit", "number", (row) => moment(row.committed_at_ms)],
  ];
  const rest = data.partition_count - data.partitions.length;
  return h(
    "section",
    { "aria-labelledby": "partitions" },
    h("h2", { id: "partitions" }, "Partitions"),
    table("Partitions", columns, data.partitions, (row) => `${row.topic}-${row.partition}`),
    rest > 0 && h("p", { class: "muted" }, `and ${counted(rest, "more partition")}, less behind than these`),
  );
}
