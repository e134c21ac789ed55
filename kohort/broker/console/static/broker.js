// The broker itself: its event loop, its requests, its memory.

import { NoAnswer } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, counted, duration, now } from "./format.js";
import { configTable, figures, table } from "./parts.js";

export const broker = {
  title: () => "Broker",
  path: () => "/broker",
  url: () => "/api/broker",
  every: 2000,
  loaded,
  view,
};

const SETTINGS_MS = 30_000;

// Rates are computed from two responses. Settings hardly ever change.
async function loaded(context) {
  const { memory, data } = context;
  memory.before = memory.newest;
  memory.newest = data;
  if (performance.now() - (memory.settingsAt ?? -Infinity) < SETTINGS_MS) return;
  memory.settingsAt = performance.now();
  try {
    memory.settings = (await context.ask("/api/broker/configs")).configs;
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    memory.refusal = error.message;
  }
}

function view(data, { memory: { before, settings, refusal } }) {
  const passed = before ? (data.at_ms - before.at_ms) / 1000 : 0;
  const rate = (value, old) => (passed > 0 ? (value - old) / passed : null);
  const perSecond = (value) => (value === null ? "–" : value < 10 ? value.toFixed(1) : count(Math.round(value)));
  const { memory, loop_lag: lag } = data;
  const earlier = new Map((before?.requests ?? []).map((request) => [request.api, request]));
  const requests = data.requests.map((request) => {
    const old = earlier.get(request.api) ?? { count: 0, total_ms: 0 };
    return { ...request, rate: before ? rate(request.count, old.count) : null };
  });
  requests.sort((a, b) => b.total_ms - a.total_ms);
  const { disk } = data;
  const share = disk.free_bytes / Math.max(disk.used_bytes + disk.free_bytes, 1);
  return [
    h("h1", null, "Broker"),
    figures([
      ["Address", data.address],
      ["Node", String(data.node_id)],
      ["Version", data.version],
      ["Uptime", duration(Math.floor((now() - data.began_ms) / 1000) * 1000)],
      ["Cluster id", data.cluster_id],
      ["Groups", count(data.groups)],
      ["Topics", count(data.topics)],
      ["Connections", data.connections_max < 2 ** 31 - 1 ? `${count(data.connections)} of ${count(data.connections_max)}` : count(data.connections)],
      ["Received", before ? `${bytes(Math.round(rate(data.received_bytes, before.received_bytes)))}/s` : "–"],
      ["Sent", before ? `${bytes(Math.round(rate(data.sent_bytes, before.sent_bytes)))}/s` : "–"],
    ]),
    h("h2", null, "Disk"),
    h("p", { class: "id" }, disk.directory),
    disk.free_bytes !== null && figures([["Used on the volume", bytes(disk.used_bytes)], ["Free", h("span", { class: share < 0.1 ? "bad" : "" }, `${bytes(disk.free_bytes)} (${Math.floor(100 * share)} %)`)]]),
    h("h2", null, "Listeners"),
    table("Listeners", LISTENERS, data.listeners, (row) => row.name),
    h("h2", null, "Clients"),
    data.clients.length ? table("Clients", CLIENTS, data.clients, (row) => [row.listener, row.principal, row.host, row.software].join(" ")) : h("p", { class: "muted" }, "No client is connected."),
    data.client_count > data.clients.length && h("p", { class: "muted" }, `and ${counted(data.client_count - data.clients.length, "more client")}`),
    h("h2", null, "Event loop delay"),
    h("p", null, `At most ${duration(Math.round(lag.recent_maximum_ms))} in the last minute or two. A delay of the event loop delays all clients. All delays since the start:`),
    lateness(lag),
    h("h2", null, "Memory"),
    table("Memory", MEMORY, memoryRows(memory), (row) => row.what),
    h("h2", null, "Waiting requests and timers"),
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
      h("h2", null, "Errors returned"),
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
    h("h2", null, "Settings"),
    refusal ? h("p", { class: "muted" }, `${refusal}.`) : settings && h("details", null, h("summary", null, `${counted(settings.length, "setting")} not at the default`), configTable(settings)),
  ];
}

function milliseconds(ms) {
  return ms < 1 ? `${ms.toFixed(2)} ms` : ms < 100 ? `${ms.toFixed(1)} ms` : duration(ms);
}

const LISTENERS = [
  ["Listener", "id", (row) => row.name],
  ["Protocol", "", (row) => row.protocol],
  ["Address", "id", (row) => row.address],
  ["Advertised as", "id", (row) => row.advertised],
];

const CLIENTS = [
  ["Host", "id", (row) => row.host],
  ["Principal", "id", (row) => row.principal],
  ["Software", "id", (row) => (row.software.startsWith("unknown") ? "unknown" : row.software)],
  ["Listener", "", (row) => row.listener],
  ["Connections", "number", (row) => count(row.connections)],
];

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
