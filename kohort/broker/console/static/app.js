// Selects the page by the address, keeps it up to date, and shows errors.

import { Events, NoAnswer, ask, query } from "./api.js";
import { h, update } from "./dom.js";
import { clock, duration, now, setClock } from "./format.js";
import { broker } from "./broker.js";
import { checks } from "./checks.js";
import { group } from "./group.js";
import { groups } from "./groups.js";
import { records } from "./records.js";
import { reset } from "./reset.js";
import { timeline } from "./timeline.js";
import { topic, topics } from "./topics.js";
import { transactions } from "./transactions.js";

// A page: `url(params, options)` returns the URL of its data, `view(data, context)` its elements; `concerns`
// whether changed groups affect it; `every` is the interval of its requests if there are no events.
const PAGES = [
  [/^\/(?:groups)?$/, groups],
  [/^\/groups\/([^/]+)$/, group],
  [/^\/groups\/([^/]+)\/timeline(?:\/(\d+))?$/, timeline],
  [/^\/groups\/([^/]+)\/reset$/, reset],
  [/^\/checks$/, checks],
  [/^\/topics$/, topics],
  [/^\/topics\/([^/]+)$/, topic],
  [/^\/topics\/([^/]+)\/records$/, records],
  [/^\/transactions$/, transactions],
  [/^\/broker$/, broker],
];
const EVERY_MS = 5000;
const APART_MS = 50;
const TICK_MS = 250;
const COUNT_MS = 10_000;

const main = document.getElementById("main");
const live = document.getElementById("live");
const warnings = document.getElementById("warnings");

let current = null;
let timer = null;
let asking = null;
let askedAt = -Infinity;
let answeredAt = null;
let isOpen = false;
let countedAt = -Infinity;

/** The state of an open page: its parameters and options from the address, its data, and its own memory. */
class Context {
  constructor(page, params, options) {
    this.page = page;
    this.params = params;
    this.options = options;
    this.data = null;
    this.error = null;
    /** Values that the page keeps while it is open. */
    this.memory = {};
  }

  /** Change the options in the address, without an entry in the browser's history. */
  set(changes) {
    const options = { ...this.options, ...changes };
    location.replace(`#${this.page.path(...this.params)}${query(options)}`);
  }

  /** Render the page again, after a change of its memory. */
  show = () => {
    if (current === this) render();
  };

  ask = ask;

  refresh = () => refresh();
}

function parse() {
  const [address, options] = (location.hash.slice(1) || "/groups").split("?");
  for (const [pattern, page] of PAGES) {
    const match = pattern.exec(address);
    if (!match) continue;
    try {
      const params = match.slice(1).map((part) => (part === undefined ? null : decodeURIComponent(part)));
      return new Context(page, params, Object.fromEntries(new URLSearchParams(options)));
    } catch {
      // An address that is not encoded correctly is treated like an unknown one.
    }
  }
  return null;
}

function open() {
  if (location.hash === "#main") return;
  const next = parse();
  const same = next && current?.page === next.page && String(current.params[0]) === String(next.params[0]);
  if (same) {
    current.params = next.params;
    current.options = next.options;
  } else {
    current = next;
    update(main, [next ? h("p", { class: "muted" }, "Loading …") : h("h1", null, "This page does not exist.")]);
    window.scrollTo(0, 0);
  }
  for (const link of document.querySelectorAll("header nav a")) {
    const isHere = (location.hash || "#/groups").startsWith(link.getAttribute("href"));
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (current) {
    document.title = `${current.page.title(...current.params)} – Kohort`;
    refresh();
  }
}

async function refresh() {
  clearTimeout(timer);
  asking?.abort();
  askedAt = performance.now();
  const context = current;
  if (!context) return;
  asking = new AbortController();
  try {
    const data = await ask(context.page.url(context.params, context.options), { signal: asking.signal });
    const at = data.at_ms ?? data.now_ms;
    if (at) setClock(at);
    context.data = data;
    context.error = null;
    answeredAt = now();
    await context.page.loaded?.(context);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof NoAnswer)) throw error;
    context.error = error;
  }
  if (context !== current) return;
  render();
  showState();
  count();
  const every = context.error ? EVERY_MS : (context.page.every ?? EVERY_MS);
  if (every < Infinity) timer = setTimeout(refresh, every);
}

function render() {
  const { data, error, page } = current;
  const shown = data ? [] : [h("h1", { class: "id" }, page.title(...current.params))];
  main.classList.toggle("stale", Boolean(error && data));
  if (error) {
    const old = data ? ` Data from ${clock(answeredAt)} UTC.` : "";
    shown.push(h("p", { class: "failure", role: "alert" }, `${error.message[0].toUpperCase()}${error.message.slice(1)}.${old}`));
  }
  if (data) shown.push(...page.view(data, current));
  update(main, shown);
  tick();
}

// The corner says how current the data are.
function showState() {
  const isDown = current?.error?.status === 0;
  const isStill = current?.page.every === Infinity;
  const updates = isStill ? (current.data ? `read at ${clock(answeredAt)}` : "") : isOpen ? "live" : "updates every few seconds";
  live.textContent = isDown ? (answeredAt ? `no answer since ${clock(answeredAt)}` : "no answer") : updates;
  live.className = isDown ? "is-down" : isOpen && !isStill ? "is-live" : "";
}

// The number of groups with warnings, in the navigation.
async function count() {
  if (performance.now() - countedAt < COUNT_MS) return;
  countedAt = performance.now();
  try {
    const { warnings: number } = await ask("/api/checks?limit=1");
    update(warnings, number ? [h("span", { class: "badge" }, number, h("span", { class: "hidden" }, ` ${number === 1 ? "group" : "groups"} with warnings`))] : []);
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
  }
}

// Updates the running times: the texts of the elements with data-since or data-until.
function tick() {
  for (const element of main.querySelectorAll("[data-since], [data-until]")) {
    const { since, until } = element.dataset;
    const text = duration(Math.max(0, since ? now() - Number(since) : Number(until) - now()));
    if (element.textContent !== text) element.textContent = text;
  }
}

// Changes are shown at once, unless the page sent a request less than APART_MS ago.
function soon() {
  const left = askedAt + APART_MS - performance.now();
  if (left <= 0) {
    refresh();
    return;
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, left);
}

const events = new Events(
  (changed) => {
    if (current?.page.concerns?.(changed, current)) soon();
  },
  (isNowOpen) => {
    isOpen = isNowOpen;
    showState();
    if (isOpen && current?.error) refresh();
  },
);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    events.stop();
    clearTimeout(timer);
  } else {
    events.start();
    if (current?.page.every !== Infinity) refresh();
  }
});
window.addEventListener("hashchange", open);
// The slash key moves the focus to the search field, as in many tools.
window.addEventListener("keydown", (event) => {
  const field = main.querySelector("input[type=search]");
  if (event.key !== "/" || !field || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  field.focus();
});
setInterval(tick, TICK_MS);
events.start();
open();
