// A group's rebalances along a time axis, and for each a diagram of which members waited for which.

import { NoAnswer, path, query } from "./api.js";
import { h } from "./dom.js";
import { cause, clock, count, counted, day, duration, family, glued, isUnsure, now } from "./format.js";
import { groupTabs, heading, moment, table, to } from "./parts.js";
import { waterfall } from "./waterfall.js";

export const timeline = {
  title: (id) => `${id}, timeline`,
  path: (id, sequence) => `/groups/${encodeURIComponent(id)}/timeline${sequence ? `/${sequence}` : ""}`,
  url: ([id], { last }) => path("groups", id, "rebalances") + query({ last: last ?? LAST }),
  concerns: (changed, { params }) => !changed || changed.has(params[0]),
  loaded,
  view,
};

const HOUR_MS = 3_600_000;
const SPANS = [
  ["1", "1 hour"],
  ["24", "24 hours"],
  ["168", "7 days"],
  ["", "all"],
];
const ROWS = 100;
const LAST = 200;
const ALL = 1000;
const LANE = 34;
const AXIS = 24;
const BAND = 20;
const MARK_MS_FULL = 30_000;

async function loaded(context) {
  const [id, sequence] = context.params;
  const { memory } = context;
  if (!sequence) {
    memory.record = null;
    return;
  }
  // The record of a finished rebalance does not change any more.
  if (memory.record?.sequence === Number(sequence) && memory.record.outcome !== "running") return;
  try {
    memory.record = await context.ask(path("groups", id, "rebalances", sequence));
    memory.missing = false;
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    memory.record = null;
    memory.missing = true;
  }
}

function view(data, context) {
  const { memory, params } = context;
  const record = memory.record;
  const noun = nounOf(data);
  // The newest record may not be counted yet.
  const rebalances = Math.max(data.total_rebalances, data.records.filter((one) => one.kind !== "avoided").length);
  return [
    heading("Groups", data.group),
    data.state === null ? h("p", null, "The group no longer exists; this is the rest of its history.") : groupTabs(data.group, "Timeline", data.type),
    h("p", { class: "muted" }, `In the history: ${counted(rebalances, noun.toLowerCase())} and ${count(data.total_avoided)} avoided, of which ${count(data.records.length)} ${data.records.length === 1 ? "is" : "are"} shown.`),
    data.records.length > 0 && [spans(context), axis(data, context)],
    params[1] && memory.missing && h("p", { class: "failure" }, `${noun} ${params[1]} is no longer in the history.`),
    record && h("section", { class: "record", "aria-labelledby": "record" }, h("h2", { id: "record" }, `${noun} ${record.sequence}`), waterfall(record)),
    list(data, context),
  ];
}

function spans(context) {
  return h(
    "p",
    { class: "spans", role: "group", "aria-label": "Time range" },
    SPANS.map(([value, text]) => h("button", { type: "button", "aria-pressed": String((context.options.span ?? "") === value), click: () => context.set({ span: value }) }, text)),
  );
}

function axis(data, context) {
  const { span } = context.options;
  const end = now();
  const begin = span ? end - Number(span) * HOUR_MS : Math.min(...data.records.map((record) => record.at_ms), end - 60_000);
  const shown = data.records.filter((record) => record.at_ms >= begin);
  const lanes = new Map();
  for (const record of shown) {
    const name = record.kind === "avoided" ? "avoided" : record.cause;
    lanes.set(name, [...(lanes.get(name) ?? []), record]);
  }
  const sorted = [...lanes].sort(([, a], [, b]) => b.length - a.length);
  const width = Math.max(280, document.getElementById("main").clientWidth - 2);
  const deploys = data.acts.filter((act) => act.kind === "deploy" && act.ended_at_ms >= begin);
  const top = AXIS + (deploys.length ? BAND : 0);
  const tall = top + sorted.length * LANE + 4;
  const place = (ms) => 4 + ((ms - begin) / (end - begin)) * (width - 8);
  const words = `${counted(shown.length, "record")} from ${clock(begin)} to now: ${sorted.map(([name, records]) => `${lane(name)} ${records.length}`).join(", ") || "nothing"}${deploys.length ? `; ${counted(deploys.length, "deploy")}` : ""}`;
  return h(
    "svg",
    { class: "axis", viewBox: `0 0 ${width} ${tall}`, width, height: tall, role: "img", "aria-label": words },
    bands(deploys, begin, place, width, tall),
    ticks(begin, end, width, place, tall),
    sorted.map(([name, records], number) => {
      const base = top + (number + 1) * LANE;
      return h(
        "g",
        { "data-key": name },
        h("text", { x: 4, y: base - LANE + 13, class: "lane" }, `${lane(name)}: ${count(records.length)}`),
        h("line", { x1: 0, x2: width, y1: base, y2: base, class: "grid" }),
        records.map((record) => mark(record, data.group, place, base, context.params[1])),
      );
    }),
  );
}

// A deploy causes many rebalances: one band in the background marks them all.
function bands(deploys, begin, place, width, tall) {
  let free = 0;
  return deploys.map((deploy) => {
    const from = place(Math.max(deploy.started_at_ms, begin));
    const wide = Math.max(place(deploy.ended_at_ms) - from, 6);
    const text = `${clock(deploy.started_at_ms)}: ${deploy.text}`;
    const band = [h("rect", { x: from - 3, y: AXIS - 4, width: wide + 6, height: tall - AXIS + 4, class: "deploy" }, h("title", null, text))];
    const x = Math.min(from, width - 48);
    if (x >= free) {
      free = x + 52;
      band.push(h("text", { x, y: AXIS + 11, class: "tick" }, "deploy"));
    }
    return h("g", { "data-key": `deploy ${deploy.first_sequence}` }, band);
  });
}

function lane(name) {
  return name === "avoided" ? "avoided" : cause(name);
}

// The mark of a rebalance: its width is the duration, its height the cost, its lane the cause. A mark is thinner if its
// cause is not certain. Its tooltip has the sentence.
function mark(record, id, place, base, selected) {
  const x = place(record.at_ms);
  const tookMs = record.outcome === "running" ? now() - record.at_ms : (record.took_ms ?? 0);
  const tall = 7 + Math.min((record.stopped_total_ms ?? 0) / MARK_MS_FULL, 1) * 10;
  const kind = record.kind === "avoided" ? "none" : family(record.cause);
  const isChosen = selected === String(record.sequence);
  const open = () => (location.hash = to("groups", id, "timeline", record.sequence));
  // Only for the mouse: the list below has the same links.
  return h("rect", { "data-key": record.sequence, x: x - 3, y: base - tall, width: Math.max(isUnsure(record) ? 3 : 6, place(record.at_ms + tookMs) - x), height: tall, class: `mark of-${kind}${isChosen ? " chosen" : ""}`, click: record.kind !== "avoided" && open }, h("title", null, `${clock(record.at_ms)}: ${record.sentence}`));
}

const STEPS_MS = [1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 10_080].map((minutes) => minutes * 60_000);

function ticks(begin, end, width, place, tall) {
  const most = Math.max(2, Math.floor(width / 130));
  const step = STEPS_MS.find((ms) => (end - begin) / ms <= most) ?? (end - begin) / most;
  const marks = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) {
    const x = place(at);
    const text = step >= 86_400_000 ? day(at) : new Date(at).toISOString().slice(11, 16);
    marks.push(h("line", { x1: x, x2: x, y1: 16, y2: tall, class: "grid" }));
    const anchor = x > width - 30 ? "end" : x < 24 ? "start" : "middle";
    marks.push(h("text", { x: Math.min(Math.max(x, 2), width - 2), y: 12, "text-anchor": anchor, class: "tick" }, text));
  }
  return marks;
}

// A share group has assignments instead of rebalances: its members do not stop.
function nounOf(data) {
  return data.type === "share" ? "Assignment" : "Rebalance";
}

function list(data, context) {
  if (!data.records.length) return h("p", null, `The history has no ${nounOf(data).toLowerCase()} of this group.`);
  const entries = entriesOf(data);
  const opened = (context.memory.opened ??= new Set());
  const rows = entries.slice(0, ROWS).flatMap((entry) => {
    if (!entry.act) return [entry];
    // An act, such as a deploy, is also expanded if one of its rebalances is shown in detail.
    const isOpen = opened.has(entry.sequence) || entry.records.some((record) => context.params[1] === String(record.sequence));
    return isOpen ? [{ ...entry, isOpen }, ...entry.records.map((record) => ({ ...record, isInner: true }))] : [entry];
  });
  const columns = [
    ["Time", "", (row) => [time(row, data, context), h("div", { class: "muted" }, moment(row.at_ms))]],
    [nounOf(data), "prose", (row) => (row.act ? actButton(row, opened, context) : row.isInner ? h("div", { class: "inner" }, glued(row.sentence)) : glued(row.sentence))],
    ["Duration", "number", (row) => (row.outcome === "running" ? "running" : duration(row.took_ms))],
    ["Stopped", "number", (row) => (row.stopped_count ? [counted(row.stopped_count, "member"), h("div", { class: "muted" }, `up to ${duration(row.stopped_longest_ms)}`)] : "–")],
  ];
  const older = data.total_rebalances + data.total_avoided > data.records.length && data.records.length < ALL;
  return [
    h("h2", null, `${nounOf(data)}s, newest first`),
    table(`${nounOf(data)}s`, columns, rows, (row) => row.sequence),
    entries.length > ROWS && h("p", { class: "muted" }, `and ${counted(entries.length - ROWS, "older row")}, shown only on the time axis`),
    older && (context.options.last ?? LAST) < ALL && h("p", null, h("button", { type: "button", click: () => context.set({ last: ALL }) }, `Load up to ${count(ALL)}`)),
  ];
}

// The rows of the list, newest first: one row for all rebalances of an act, such as a deploy.
function entriesOf({ records, acts }) {
  const entries = new Map();
  for (const record of [...records].reverse()) {
    const act = acts.find((each) => belongs(record, each));
    if (!act) entries.set(record, record);
    else if (entries.has(act)) entries.get(act).records.push(record);
    else entries.set(act, { act, records: [record], sequence: `${act.kind} ${act.first_sequence}`, at_ms: act.started_at_ms, took_ms: act.ended_at_ms === null ? null : act.ended_at_ms - act.started_at_ms });
  }
  return [...entries.values()].map((entry) => (entry.act ? summedUp(entry) : entry));
}

function belongs(record, act) {
  if (record.kind !== "avoided") return act.sequences.includes(record.sequence);
  return act.avoided_count > 0 && act.first_sequence <= record.sequence && record.sequence <= act.last_sequence;
}

function summedUp(entry) {
  if (entry.records.length === 1) return entry.records[0];
  const most = (name) => Math.max(...entry.records.map((record) => record[name] ?? 0));
  return { ...entry, stopped_count: most("stopped_count"), stopped_longest_ms: most("stopped_longest_ms") };
}

function time(row, data, context) {
  if (row.act || row.kind === "avoided") return clock(row.at_ms);
  return h("a", { href: to("groups", data.group, "timeline", row.sequence), "aria-current": context.params[1] === String(row.sequence) ? "true" : null }, clock(row.at_ms));
}

function actButton(row, opened, context) {
  const toggle = () => {
    if (!opened.delete(row.sequence)) opened.add(row.sequence);
    context.show();
  };
  const text = glued(row.act.text[0].toUpperCase() + row.act.text.slice(1));
  return h("button", { type: "button", class: "disclosure", "aria-expanded": String(Boolean(row.isOpen)), click: toggle }, h("span", { "aria-hidden": "true" }, row.isOpen ? "▾ " : "▸ "), text);
}
