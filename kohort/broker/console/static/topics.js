// Topics, and the groups that read them.

import { path, query } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, counted } from "./format.js";
import { age, configTable, figures, filterField, groupLink, heading, pager, stateMark, table, to, topicTabs } from "./parts.js";

export const topics = {
  title: () => "Topics",
  path: () => "/topics",
  url: (_, { filter, internal, page }) => `/api/topics${query({ filter, internal, page })}`,
  view: viewAll,
};

function viewAll(data, context) {
  const isInternal = context.options.internal === "yes";
  const columns = [
    ["Topic", "id", (row) => h("a", { href: to("topics", row.topic) }, row.topic)],
    ["Partitions", "number", (row) => [count(row.partition_count), row.offline > 0 && h("div", { class: "bad" }, `${count(row.offline)} offline`)]],
    ["Offsets", "number", (row) => count(row.offsets)],
    ["Size", "number", (row) => bytes(row.size_bytes)],
    ["Groups", "id", (row) => readers(row)],
  ];
  return [
    h("h1", null, "Topics"),
    h(
      "form",
      { class: "filters", role: "search", submit: (event) => event.preventDefault() },
      filterField(context, "Name contains"),
      h(
        "label",
        null,
        h("input", { type: "checkbox", checked: isInternal, change: (event) => context.set({ internal: event.target.checked ? "yes" : "", page: "" }) }),
        " Internal topics",
      ),
      h("span", { class: "muted", role: "status" }, counted(data.found, "topic")),
    ),
    data.topics.length ? table("Topics", columns, data.topics, (row) => row.topic) : h("p", null, "No topic matches."),
    pager(data, context),
  ];
}

function readers(row) {
  if (!row.group_count) return h("span", { class: "muted" }, "none");
  const rest = row.group_count - row.groups.length;
  return [row.groups.map((id, place) => [place ? ", " : "", groupLink(id)]), rest > 0 && ` and ${count(rest)} more`];
}

export const topic = {
  title: (name) => name,
  path: (name) => `/topics/${encodeURIComponent(name)}`,
  url: ([name]) => path("topics", name),
  loaded: loadedOne,
  view: viewOne,
};

// Rates over the last responses, at most a minute.
function loadedOne({ memory, data }) {
  const ends = data.partitions.reduce((sum, partition) => sum + partition.end, 0);
  (memory.seen ??= []).push({ at: data.at_ms, ends, size: data.size_bytes });
  if (memory.seen.length > 12) memory.seen.shift();
}

function ratesOf([first, ...rest]) {
  const last = rest.at(-1);
  if (!last || last.at <= first.at) return null;
  const perSecond = (from, until) => ((until - from) * 1000) / (last.at - first.at);
  const written = Math.max(perSecond(first.ends, last.ends), 0);
  return { records: written && written < 10 ? written.toFixed(1) : count(Math.round(written)), growth: bytes(Math.max(Math.round(perSecond(first.size, last.size)), 0)) };
}

function viewOne(data, { memory }) {
  const rates = ratesOf(memory.seen);
  const groupColumns = [
    ["Group", "name", (row) => groupLink(row.group)],
    ["State", "bare", (row) => stateMark(row.state)],
    ["Members", "number", (row) => count(row.members)],
    ["Lag", "number", (row) => count(row.lag)],
    ["Behind", "number", (row) => age(row.lag_ms, row.lag_ms_is_least)],
  ];
  const partitionColumns = [
    ["Partition", "", (row) => row.partition],
    ["First offset", "number", (row) => count(row.start)],
    ["End", "number", (row) => count(row.end)],
    ["Size", "number", (row) => bytes(row.size_bytes)],
    ["State", "bare", (row) => (row.is_online ? "online" : h("span", { class: "bad" }, "offline"))],
  ];
  const configs = data.configs ?? [];
  const set = configs.filter((config) => config.source === "TOPIC");
  const rest = data.group_count - data.groups.length;
  return [
    heading("Topics", data.topic),
    topicTabs(data.topic, "Overview"),
    figures([
      ["Partitions", count(data.partition_count)],
      ["Offsets", count(data.offsets)],
      ["Size", bytes(data.size_bytes)],
      ["Written", rates ? `${rates.records}/s` : "–"],
      ["Growth", rates ? `${rates.growth}/s` : "–"],
    ]),
    h("h2", null, "Groups that read this topic"),
    data.groups.length ? table("Groups", groupColumns, data.groups, (row) => row.group) : h("p", { class: "muted" }, "None."),
    rest > 0 && h("p", { class: "muted" }, `and ${counted(rest, "more group")}`),
    h("h2", null, "Partitions"),
    table("Partitions", partitionColumns, data.partitions, (row) => row.partition),
    configs.length > 0 && [h("h2", null, "Configuration"), set.length ? configTable(set) : h("p", { class: "muted" }, "The topic has no settings of its own."), h("details", null, h("summary", null, `All ${count(configs.length)} settings`), configTable(configs))],
  ];
}
