// All groups: their states, their lag, and the causes of their last rebalances.

import { query } from "./api.js";
import { h } from "./dom.js";
import { cause, count, counted, glued, isUnsure } from "./format.js";
import { age, filterField, groupLink, moment, pager, select, since, sorter, sparkline, stateMark, table } from "./parts.js";

const STATES = [
  ["", "all states"],
  ["waiting", "rebalancing"],
  ["Stable", "stable"],
  ["Empty", "empty"],
];

export const groups = {
  title: () => "Groups",
  path: () => "/groups",
  url: (_, { filter, state, sort, page }) => `/api/groups${query({ filter, state, sort, page })}`,
  concerns: (changed, { data }) => !changed || !data || data.groups.some((group) => changed.has(group.group)) || changed.size > 0,
  view,
};

function view(data, context) {
  const filtered = context.options.filter || context.options.state;
  const many = data.looked_at < data.total ? `, of which ${count(data.looked_at)} are searched` : "";
  return [
    h("h1", null, "Groups"),
    h(
      "form",
      { class: "filters", role: "search", submit: (event) => event.preventDefault() },
      filterField(context, "Name contains"),
      select("Show", STATES, context.options.state ?? "", (event) => context.set({ state: event.target.value, page: "" })),
      h("span", { class: "muted", role: "status" }, filtered ? `${count(data.found)} of ${counted(data.total, "group")}` : `${counted(data.total, "group")}${many}`),
    ),
    data.groups.length ? list(data, context) : nothing(filtered),
    pager(data, context),
  ];
}

function nothing(filtered) {
  if (filtered) return h("p", null, "No group matches.");
  return h("p", null, "There are no groups yet. One appears here when its first consumer joins.");
}

function list(data, context) {
  const columns = [
    ["Group", "name", (row) => name(row), sorter("Group", "group", context)],
    ["State", "bare", (row) => stateMark(row.state), sorter("State", "state", context)],
    ["Members", "number", (row) => count(row.members), sorter("Members", "members", context, { down: true })],
    ["Lag", "number", (row) => count(row.lag), sorter("Lag", "lag", context, { down: true })],
    ["Behind", "number", (row) => behind(row)],
    ["Last hour", "wide", (row) => sparkline(row.last_hour)],
    ["Last rebalance", "last wide", (row) => last(row)],
  ];
  return table("Groups", columns, data.groups, (row) => row.group);
}

function name(row) {
  if (row.problems.length) return [groupLink(row.group), row.problems.map((problem) => h("div", { class: "problem" }, glued(problem.text)))];
  return [groupLink(row.group), row.waiting && h("div", { class: "waits" }, "waits ", since(row.waiting.since_ms), ` ${row.waiting.text}`)];
}

function behind(row) {
  const isRising = row.problems.some((problem) => problem.check === "falls-behind");
  return isRising ? h("span", { class: "bad", title: "The lag rises." }, age(row.lag_ms, row.lag_ms_is_least), h("span", { "aria-hidden": "true" }, " ↑")) : age(row.lag_ms, row.lag_ms_is_least);
}

function last(row) {
  if (!row.last) return h("span", { class: "muted" }, "none recorded");
  return h("span", { title: row.last.text ?? "" }, cause(row.last.cause), isUnsure(row.last) ? ` (${row.last.certainty})` : "", ", ", moment(row.last.at_ms));
}
