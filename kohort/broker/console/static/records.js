// Records of a topic: the address contains where to start, and the page does not poll.

import { path, query } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, counted, precise } from "./format.js";
import { field, heading, select, topicTabs } from "./parts.js";

const STARTS = [
  ["", "the newest"],
  ["oldest", "the oldest"],
  ["offset", "an offset"],
  ["time", "a time (UTC)"],
];
const FORMS = [
  ["", "automatic"],
  ["text", "text"],
  ["json", "JSON"],
  ["hex", "hex"],
];
const LIMITS = ["10", "50", "200"];
const PREVIEW = 160;
const LINE = 16;

export const records = {
  title: (name) => `${name}, records`,
  path: (name) => `/topics/${encodeURIComponent(name)}/records`,
  url: ([name], { from, at, time, partition, limit }) =>
    path("topics", name, "records") + query({ from: from === "offset" && !at ? "oldest" : from === "time" && !time ? "newest" : from, at: from === "offset" ? at : from === "time" && time ? Date.parse(`${time}Z`) : "", partition: partition || (from === "offset" ? "0" : ""), limit }),
  every: Infinity,
  view,
};

function view(data, context) {
  const { options } = context;
  const set = (name) => (event) => context.set({ [name]: event.target.value });
  const partitions = [...Array(data.partition_count).keys()].map((index) => [String(index), String(index)]);
  const first = options.from === "offset" ? partitions : [["", "all"], ...partitions];
  return [
    heading("Topics", data.topic),
    topicTabs(data.topic, "Records"),
    h(
      "form",
      { class: "filters", submit: (event) => event.preventDefault() },
      select("Start at", STARTS, options.from ?? "", set("from")),
      options.from === "offset" && field("Offset", { type: "number", min: "0", value: options.at ?? "", change: set("at") }),
      options.from === "time" && field("Time", { type: "datetime-local", step: "1", value: options.time ?? "", change: set("time") }),
      select("Partition", first, options.partition ?? "", set("partition")),
      select("Records", LIMITS.map((limit) => [limit, limit]), options.limit ?? "50", set("limit")),
      select("Show as", FORMS, options.form ?? "", set("form")),
      h("button", { type: "button", click: () => context.refresh() }, "Read again"),
    ),
    data.problems.map((text) => h("p", { class: "failure" }, text)),
    h("p", { class: "muted" }, data.records.length ? `${counted(data.records.length, "record")}, ${options.from ? "the oldest" : "the newest"} first.` : `No records${options.from ? " from there on" : ""}.`, " ", data.ranges.length === 1 && `The partition’s first offset is ${count(data.ranges[0].start)}, its end ${count(data.ranges[0].end)}.`),
    data.records.length > 0 && h("p", { class: "heads", "aria-hidden": "true" }, h("span", null, "Partition-offset"), h("span", null, "Time"), h("span", null, "Key"), h("span", null, "Value")),
    h("ol", { class: "records" }, data.records.map((record) => row(data.topic, record, options.form, context))),
    more(data, context),
  ];
}

function row(topic, record, form, context) {
  const key = `${record.partition}-${record.offset}`;
  const whole = context.memory[key] ?? record;
  const isCut = [whole.key, whole.value].some((part) => part && decode(part).length < part.size);
  const isOpen = context.memory.opened?.has(key);
  return h(
    "li",
    { "data-key": key },
    h(
      "details",
      { toggle: (event) => toggled(key, event.target.open, context) },
      h(
        "summary",
        null,
        h("span", { class: "place" }, key),
        h("time", { class: "muted" }, record.timestamp_ms < 0 ? "no time" : precise(record.timestamp_ms)),
        h("span", { class: "key-of" }, preview(record.key, form, "no key")),
        h("span", { class: "preview" }, preview(record.value, form, "no value (tombstone)")),
      ),
      isOpen && [
        part("Key", whole.key, form),
        part("Value", whole.value, form),
        whole.headers.length > 0 && h("table", { class: "headers" }, h("caption", null, "Headers"), h("tbody", null, whole.headers.map((header, place) => h("tr", { "data-key": place }, h("th", { scope: "row", class: "id" }, header.name), h("td", { class: "id" }, headerText(header.value, form).slice(0, 4000)))))),
        whole.header_count > whole.headers.length && h("p", { class: "muted" }, `and ${count(whole.header_count - whole.headers.length)} more headers`),
        isCut && whole === record && h("p", null, h("button", { type: "button", click: () => read(topic, record, key, context) }, "Read the whole record")),
      ],
    ),
  );
}

function toggled(key, isOpen, context) {
  const opened = (context.memory.opened ??= new Set());
  if (opened.has(key) === isOpen) return;
  if (isOpen) opened.add(key);
  else opened.delete(key);
  context.show();
}

async function read(topic, { partition, offset }, key, context) {
  const data = await context.ask(path("topics", topic, "records") + query({ from: "offset", at: offset, partition, whole: "yes" }));
  if (data.records[0]?.offset === offset) context.memory[key] = data.records[0];
  context.show();
}

function more(data, context) {
  const { records: found } = data;
  if (data.ranges.length !== 1 || !found.length) return null;
  const [{ partition, start, end }] = data.ranges;
  const offsets = found.map((record) => record.offset);
  const step = (offset) => () => context.set({ from: "offset", at: String(Math.max(offset, start)), partition: String(partition) });
  const limit = Number(context.options.limit ?? 50);
  return h(
    "p",
    { class: "pager" },
    h("button", { type: "button", disabled: Math.min(...offsets) <= start, click: step(Math.min(...offsets) - limit) }, "Earlier"),
    " ",
    h("button", { type: "button", disabled: Math.max(...offsets) + 1 >= end, click: step(Math.max(...offsets) + 1) }, "Later"),
  );
}

function part(name, data, form) {
  if (!data) return h("p", { class: "muted" }, `${name}: none`);
  const shown = decode(data).length;
  return [
    h("p", { class: "muted" }, `${name}: ${bytes(data.size)}${shown < data.size ? `, of which the first ${bytes(shown)}` : ""}`),
    h("pre", { tabindex: "0", class: isDumped(data, form) ? "dump" : null }, text(data, form)),
  ];
}

function preview(data, form, missing) {
  if (!data) return h("span", { class: "muted" }, missing);
  const cut = { ...data, base64: data.base64.slice(0, 4 * PREVIEW) };
  // JSON is shown as it was sent; it is indented only in an opened record.
  const line = isDumped(cut, form) ? hexadecimal(decode(cut).slice(0, 32), " ") : lenient(cut);
  return line.length > PREVIEW ? `${line.slice(0, PREVIEW)}…` : line;
}

// Whether the bytes are shown in hexadecimal.
function isDumped(data, form) {
  return form === "hex" || (!form && plain(data) === null);
}

// A header's value is one line: without the positions of a dump, which would look like bytes.
function headerText(data, form) {
  if (!data) return "null";
  return isDumped(data, form) ? hexadecimal(decode(data), " ") : text(data, form);
}

function text(data, form) {
  if (isDumped(data, form)) return dump(decode(data));
  if (form === "text") return lenient(data);
  const found = plain(data);
  if (found === null) return `not JSON:\n${lenient(data)}`;
  return json(found) ?? (form === "json" ? `not JSON:\n${found}` : found);
}

function decode({ base64 }) {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

const LENIENT = new TextDecoder("utf-8");

// The text, if the bytes are UTF-8 without control characters; the last character may be cut.
function plain(data) {
  try {
    const shown = decode(data);
    const found = new TextDecoder("utf-8", { fatal: true }).decode(shown, { stream: shown.length < data.size });
    return /[\u0000-\u0008\u000e-\u001f]/.test(found) ? null : found;
  } catch {
    return null;
  }
}

function lenient(data) {
  return LENIENT.decode(decode(data));
}

// Indented JSON, with numbers as they were written; null if it is not an object or an array.
function json(found) {
  if (!/^\s*[[{]/.test(found)) return null;
  try {
    return JSON.stringify(JSON.parse(found, (_, value, { source } = {}) => (typeof value === "number" && source && JSON.rawJSON ? JSON.rawJSON(source) : value)), null, 2);
  } catch {
    return null;
  }
}

function hexadecimal(data, between) {
  return [...data].map((byte) => byte.toString(16).padStart(2, "0")).join(between);
}

// Lines of 16 bytes: the position, the bytes in hexadecimal, and as text, with a dot for unprintable bytes.
function dump(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += LINE) {
    const part = data.slice(at, at + LINE);
    const letters = [...part].map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hexadecimal(part, " ").padEnd(3 * LINE)} ${letters}`);
  }
  return lines.join("\n");
}
