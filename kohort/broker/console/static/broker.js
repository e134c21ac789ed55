// The broker itself: its event loop, its requests, its memory.

import { h } from "./dom.js";
import { bytes, count, duration, now } from "./format.js";
import { figures, table } from "./parts.js";

export const broker = {
  title: () => "Broker",
  path: () => "/broker",
  url: () => "/api/broker",
  every: 2000,
  loaded,
  view,
};

// Rates are computed from two responses.
function loaded(context) {
  const { memory, data } = context;
  memory.before = memory.newest;
  memory.newest = data;
}

function view(data, { memory: { before } }) {
  const passed = before ? (data.at_ms - before.at_ms) / 1000 : 0;
  const rate = (value, old) => (passed > 0 ? (value - old) / passed : null);
  const perSecond = (value) => (value === null ? "–" : value < 10 ? value.toFixed(1) : count(Math.round(value)));
  const { memory, loop_lag: lag } = data;
  const earlier = new Map((before?.requests ?? []).map((request) => [request.api, request]));
  const requests = data.requests.map((request) => {
    const old = earlier.get(request.api) ?? { count: 0, total_ms: 0 };
    return { ...request, rate: before ? rate(request.count, old.count) : null };
  });
  requests.sort((a, b) => (b.rate ?? 0) - (a.rate ?? 0) || b.count - a.count);
  return [
    h("h1", null, "Broker"),
    figures([
      ["Address", data.address],
      ["Node", String(data.node_id)],
      ["Version", data.version],
      ["Uptime", duration(Math.floor((now() - data.began_ms) / 1000) * 1000)],
      ["Groups", count(data.groups)],
      ["Topics", count(data.topics)],
      ["Connections", data.connections_max < 2 ** 31 - 1 ? `${count(data.connections)} of ${count(data.connections_max)}` : count(data.connections)],
      ["Received", before ? `${bytes(Math.round(rate(data.received_bytes, before.received_bytes)))}/s` : "–"],
      ["Sent", before ? `${bytes(Math.round(rate(data.sent_bytes, before.sent_bytes)))}/s` : "–"],
    ]),
    h("h2", null, "Event loop lag"),
    h("p", null, `At most ${duration(Math.round(lag.recent_maximum_ms))} in the last minute or two. A lag of the event loop delays all clients.`),
    lateness(lag),
    h("h2", null, "Memory"),
    table("Memory", MEMORY, memoryRows(memory), (row) => row.what),
    h("h2", null, "Waiting"),
    figures([["Requests", count(data.waiting_requests)], ...Object.entries(data.parked).map(([kind, number]) => [kind, count(number)])]),
    h("h2", null, "Requests"),
    table(
      "Requests",
      [
        ["Request", "", (row) => row.api],
        ["Per second", "number", (row) => perSecond(row.rate)],
        ["Total", "number", (row) => count(row.count)],
        ["Mean time", "number", (row) => (row.count ? milliseconds(row.total_ms / row.count) : "–")],
      ],
      requests,
      (row) => row.api,
    ),
    h("p", { class: "muted" }, "Times are from the end of the request to the response, including waits: a Fetch waits for records."),
    data.errors.length > 0 && [
      h("h2", null, "Errors returned to clients"),
      table(
        "Errors",
        [
          ["Request", "", (row) => row.api],
          ["Error", "id", (row) => row.error],
          ["Total", "number", (row) => count(row.count)],
        ],
        data.errors,
        (row) => `${row.api} ${row.error}`,
      ),
    ],
  ];
}

function milliseconds(ms) {
  return ms < 1 ? `${ms.toFixed(2)} ms` : ms < 100 ? `${ms.toFixed(1)} ms` : duration(ms);
}

const MEMORY = [
  ["Use", "", (row) => row.what],
  ["Size", "number", (row) => bytes(row.size)],
  ["Limit", "number", (row) => (row.most ? bytes(row.most) : "–")],
];

function memoryRows(memory) {
  return [
    { what: "process", size: memory.resident_bytes },
    { what: "requests being received or waiting", size: memory.requests_bytes, most: memory.requests_bytes_max },
    { what: "responses not read by their clients yet", size: memory.unsent_bytes },
    { what: "parked requests", size: memory.parked_bytes },
    { what: "rebalance history", size: memory.history_bytes, most: memory.history_bytes_max },
  ];
}

function lateness({ bounds_ms: bounds, counts }) {
  const total = counts.reduce((sum, number) => sum + number, 0) || 1;
  const rows = counts.map((number, place) => ({
    what: place < bounds.length ? `up to ${duration(bounds[place])}` : `longer`,
    share: number / total,
  }));
  return h(
    "ul",
    { class: "bars" },
    rows
      .filter((row) => row.share > 0)
      .map((row) =>
        h(
          "li",
          null,
          h("span", null, row.what),
          h("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, h("rect", { width: Math.max(row.share * 100, 0.4), height: 4, class: "bar" })),
          h("span", { class: "number" }, `${(row.share * 100).toFixed(row.share < 0.01 ? 2 : 1)} %`),
        ),
      ),
  );
}
