// Elements that several pages use.

import { h } from "./dom.js";
import { ago, clock, count, counted, duration, glued, now, shortId } from "./format.js";

/** The address of a page, with each part encoded. */
export function to(...parts) {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

/** The title of a page, below a link to the list that leads to the page. */
export function heading(list, name) {
  return [h("p", { class: "crumbs" }, h("a", { href: to(list.toLowerCase()) }, list)), h("h1", { class: "id" }, name || "(empty name)")];
}

// Whether the broker has pages that change something (kohort.console.write).
const MAY_WRITE = document.body.hasAttribute("data-writes");

/** The pages of one group. */
export function groupTabs(id, here, type) {
  const tab = (name, ...rest) => h("a", { href: to("groups", id, ...rest), "aria-current": name === here ? "page" : null }, name);
  return h("nav", { class: "tabs", "aria-label": "Pages of the group" }, tab("Now"), tab("Timeline", "timeline"), MAY_WRITE && type !== "share" && tab("Reset offsets", "reset"));
}

/** The pages of one topic. */
export function topicTabs(name, here) {
  const tab = (text, ...rest) => h("a", { href: to("topics", name, ...rest), "aria-current": text === here ? "page" : null }, text);
  return h("nav", { class: "tabs", "aria-label": "Pages of the topic" }, tab("Overview"), tab("Records", "records"));
}

/** A labelled choice: `choices` are [value, text]. */
export function select(label, choices, chosen, change) {
  return h("label", null, label, " ", h("select", { change }, choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
}

/** A labelled input field. */
export function field(label, attributes) {
  return h("label", null, label, " ", h("input", { autocomplete: "off", ...attributes }));
}

/** A link to a group. */
export function groupLink(id) {
  return h("a", { href: to("groups", id) }, id || "(empty name)");
}

const GOOD = new Set(["Stable"]);
const BUSY = new Set(["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"]);

/** 0–3, 7, 9–12. */
export function ranges(numbers) {
  const spans = [];
  for (const number of numbers) {
    const open = spans.at(-1);
    if (open && open[1] === number - 1) open[1] = number;
    else spans.push([number, number]);
  }
  return spans.map(([first, end]) => (first === end ? first : `${first}–${end}`)).join(", ");
}

// `kohort watch` has no pages about topics.
const HAS_TOPICS = document.querySelector('header a[href="#/topics"]') !== null;

/** A link to a topic, if there are pages about topics. */
export function topicLink(topic) {
  return HAS_TOPICS ? h("a", { href: to("topics", topic) }, topic) : topic;
}

/** A group's state: a symbol and a word, so that it can be read without colours. */
export function stateMark(state) {
  const kind = GOOD.has(state) ? "good" : BUSY.has(state) ? "busy" : "idle";
  const sign = { good: "●", busy: "◐", idle: "○" }[kind];
  const words = (state ?? "gone").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return h("span", { class: `state ${kind}` }, h("span", { "aria-hidden": "true" }, `${sign} `), words);
}

const FAR_BEHIND_MS = 60_000;

/** Lag in time: the age of the first unread record. */
export function age(ms, isLeast) {
  if (ms === null || ms === undefined) return "–";
  return h("span", { class: ms >= FAR_BEHIND_MS ? "far" : null }, `${isLeast ? "≥ " : ""}${ms ? duration(ms) : "0 s"}`);
}

/** Rebalances of the last hour, or what `noun` names: a bar for each five minutes. */
export function sparkline(bins, noun = "rebalance") {
  const most = Math.max(...bins, 4);
  const total = bins.reduce((sum, number) => sum + number, 0);
  const words = `${counted(total, noun)} in the last hour`;
  const bars = bins.map((number, place) => {
    const tall = number ? Math.max(2, (number / most) * 18) : 0.5;
    return h("rect", { x: place * 5, y: 20 - tall, width: 4, height: tall, class: number ? "bar" : "none" });
  });
  return h(
    "span",
    { class: "spark" },
    h("svg", { viewBox: "0 0 60 20", role: "img", "aria-label": words }, h("title", null, words), bars),
    h("span", { class: "total" }, count(total)),
  );
}

const HOUR_MS = 3_600_000;

/** The lag of the last hour as a line: `samples` are [wall time, lag]. */
export function lagLine(samples, at) {
  const most = Math.max(...samples.map(([, lag]) => lag), 1);
  const points = samples.map(([ms, lag]) => `${(200 * (1 - (at - ms) / HOUR_MS)).toFixed(1)},${(31 - (lag / most) * 29).toFixed(1)}`);
  const words = `Lag of the last hour: from ${count(samples[0][1])} to ${count(samples.at(-1)[1])}, at most ${count(most)}`;
  return h(
    "span",
    { class: "spark" },
    h("svg", { class: "lag", viewBox: "0 0 200 32", role: "img", "aria-label": words }, h("title", null, words), h("line", { x1: 0, x2: 200, y1: 31.5, y2: 31.5, class: "grid" }), h("path", { d: `M${points.join("L")}`, class: "line" })),
    h("span", { class: "muted" }, `up to ${count(most)}`),
  );
}

/** A table: `columns` are [title, class, cell(row)], `key(row)` identifies a row. */
export function table(caption, columns, rows, key) {
  const heads = columns.map(([title, kind, , head]) => h("th", { scope: "col", class: kind, ...head?.attributes }, head?.content ?? title));
  const body = rows.map((row) =>
    h(
      "tr",
      { "data-key": key(row) },
      columns.map(([title, kind, cell], place) => {
        const attributes = { class: kind, "data-label": title };
        if (!place) return h("th", { scope: "row", ...attributes }, cell(row));
        return h("td", attributes, h("div", { class: "cell" }, cell(row)));
      }),
    ),
  );
  return h(
    "table",
    null,
    h("caption", { class: "hidden" }, caption),
    h("thead", null, h("tr", null, heads)),
    h("tbody", null, body),
  );
}

/** The header of a sortable column: a button that shows the current direction. */
export function sorter(title, name, context, { down = false } = {}) {
  const sort = context.options.sort ?? "problem";
  const isThis = sort.replace("-", "") === name;
  const isDown = isThis && sort.startsWith("-");
  const next = isThis ? (isDown ? name : `-${name}`) : down ? `-${name}` : name;
  return {
    attributes: { "aria-sort": isThis ? (isDown ? "descending" : "ascending") : "none" },
    content: h(
      "button",
      { type: "button", class: "sort", click: () => context.set({ sort: next, page: "" }) },
      title,
      h("span", { "aria-hidden": "true" }, isThis ? (isDown ? " ▼" : " ▲") : ""),
    ),
  };
}

/** A field that filters by part of a name. */
export function filterField(context, label) {
  let timer = null;
  return h(
    "label",
    null,
    label,
    " ",
    h("input", {
      type: "search",
      value: context.options.filter ?? "",
      autocomplete: "off",
      spellcheck: "false",
      input: (event) => {
        clearTimeout(timer);
        const { value } = event.target;
        timer = setTimeout(() => context.set({ filter: value, page: "" }), 200);
      },
    }),
  );
}

/** The page number, and buttons for the previous and the next page. */
export function pager(data, context) {
  if (data.pages < 2) return null;
  const step = (page, text) =>
    h("button", { type: "button", disabled: page < 1 || page > data.pages, click: () => context.set({ page }) }, text);
  return h(
    "p",
    { class: "pager" },
    step(data.page - 1, "Previous"),
    ` page ${count(data.page)} of ${count(data.pages)} `,
    step(data.page + 1, "Next"),
  );
}

/** Findings, each with its advice. */
export function findingList(findings) {
  return h(
    "ul",
    { class: "findings" },
    findings.map((finding) =>
      h(
        "li",
        { class: finding.is_warning ? "warning" : "note" },
        h("strong", null, finding.is_warning ? "Warning: " : "Note: "),
        glued(finding.text),
        " ",
        h("span", { class: "muted" }, glued(finding.advice)),
        finding.member_ids.length > 0 &&
          h("details", null, h("summary", null, "Members"), h("ul", null, finding.member_ids.map((id) => h("li", { class: "id", title: id }, shortId(id))))),
      ),
    ),
  );
}

/** A member's static id, or its id shortened; the whole id is the tooltip. */
export function memberName(member) {
  return h("span", { class: "id", title: member.member_id }, member.instance_id ?? shortId(member.member_id));
}

/** "12 s ago", with the exact time as tooltip. */
export function moment(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  return h("time", { datetime: new Date(ms).toISOString(), title: `${clock(ms)} UTC; here: ${new Date(ms).toLocaleString("en-GB")}` }, ago(ms));
}

/** The time since `ms`, updated continuously. */
export function since(ms) {
  return h("span", { "data-since": ms, class: "ticks" }, duration(Math.max(0, now() - ms)));
}

/** The time left until `ms`, updated continuously. */
export function until(ms) {
  return h("span", { "data-until": ms, class: "ticks" }, duration(Math.max(0, ms - now())));
}

const SOURCES = { TOPIC: "the topic", DYNAMIC_BROKER: "this broker’s run-time settings", DYNAMIC_DEFAULT_BROKER: "all brokers’ run-time settings", STATIC_BROKER: "this broker’s start-up settings", DEFAULT: "default" };

/** Settings with the place where each was set. */
export function configTable(configs) {
  const columns = [
    ["Setting", "id", (row) => row.name],
    ["Value", "id", (row) => row.value ?? "–"],
    ["Set in", "", (row) => SOURCES[row.source] ?? row.source],
  ];
  return table("Settings", columns, configs, (row) => row.name);
}

/** Figures side by side, each as [name, value]. */
export function figures(pairs) {
  return h(
    "dl",
    { class: "figures" },
    pairs.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}
