// Open transactions: whose they are, how long they are open, and which partitions they hold back.

import { h } from "./dom.js";
import { count, counted, duration } from "./format.js";
import { ranges, since, table, topicLink } from "./parts.js";

const LONG_MS = 10_000;

export const transactions = {
  title: () => "Transactions",
  path: () => "/transactions",
  url: () => "/api/transactions?limit=200",
  every: 3000,
  view,
};

function view(data) {
  const columns = [
    ["Transactional id", "id", (row) => [row.transactional_id, row.is_stuck && h("div", { class: "problem" }, "cannot be completed now")]],
    ["State", "", (row) => row.state.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase()],
    ["Client", "id", (row) => [row.client_id ?? "–", h("div", { class: "muted" }, row.client_host?.replace(/^\//, ""))]],
    ["Open for", "number", (row) => (row.start_ms === null ? "–" : h("span", { class: row.age_ms >= LONG_MS ? "bad" : "" }, since(row.start_ms)))],
    ["Aborted after", "number", (row) => duration(row.timeout_ms)],
    ["Producer", "number", (row) => [String(row.producer_id), h("div", { class: "muted" }, `epoch ${row.producer_epoch}`)]],
    ["Partitions", "", (row) => partitions(row)],
  ];
  const rest = data.total - data.transactions.length;
  return [
    h("h1", null, "Transactions"),
    h("p", null, data.total ? `${counted(data.total, "open transaction")}, the oldest first.` : "No transaction is open."),
    h("p", { class: "muted" }, `A read_committed consumer cannot read past the first record of an open transaction.`),
    data.transactions.length > 0 && table("Open transactions", columns, data.transactions, (row) => row.transactional_id),
    rest > 0 && h("p", { class: "muted" }, `and ${counted(rest, "younger transaction")}`),
  ];
}

function partitions(row) {
  const topics = Object.entries(row.partitions);
  const listed = topics.reduce((sum, [, numbers]) => sum + numbers.length, 0);
  const rest = row.partition_count - listed;
  return [topics.map(([topic, numbers]) => h("div", { class: "id" }, topicLink(topic), `: ${ranges(numbers)}`)), rest > 0 && h("div", { class: "muted" }, `and ${count(rest)} more`)];
}
