// Chooses the page by the address, keeps it up to date, and shows what goes wrong.

import { Events, NoAnswer, ask, query } from "./api.js";
import { h, update } from "./dom.js";
import { duration, now, setClock } from "./format.js";
import { broker } from "./broker.js";
import { checks } from "./checks.js";
import { group } from "./group.js";
import { groups } from "./groups.js";
import { timeline } from "./timeline.js";
import { topic, topics } from "./topics.js";

// A page: `url(params, options)` is what it asks for, `view(data, context)` what it shows; `concerns`
// says whether it shows a group; `every` is how often it asks when nothing is told.
const PAGES = [
  [/^\/(?:groups)?$/, groups],
  [/^\/groups\/([^/]+)$/, group],
  [/^\/groups\/([^/]+)\/timeline(?:\/(\d+))?$/, timeline],
  [/^\/checks$/, checks],
  [/^\/topics$/, topics],
  [/^\/topics\/([^/]+)$/, topic],
  [/^\/broker$/, broker],
];
const EVERY_MS = 5000;
const APART_MS = 50;
const TICK_MS = 250;

const main = document.getElementById("main");
const live = document.getElementById("live");

let current = null;
let timer = null;
let asking = null;
let askedAt = -Infinity;

/** What a page is given beside its data: who is asked about, and ways to go elsewhere. */
class Context {
  constructor(page, params, options) {
    this.page = page;
    this.params = params;
    this.options = options;
    this.data = null;
    this.error = null;
    /** What the page remembers while it is open. */
    this.memory = {};
  }

  /** Change the options in the address, without a step back to each. */
  set(changes) {
    const options = { ...this.options, ...changes };
    location.replace(`#${this.page.path(...this.params)}${query(options)}`);
  }

  /** Show what the page remembers now. */
  show = () => {
    if (current === this) render();
  };

  ask = (path) => ask(path);
}

function parse() {
  const [address, options] = (location.hash.slice(1) || "/groups").split("?");
  for (const [pattern, page] of PAGES) {
    const found = pattern.exec(address);
    if (!found) continue;
    try {
      const params = found.slice(1).map((part) => (part === undefined ? null : decodeURIComponent(part)));
      return new Context(page, params, Object.fromEntries(new URLSearchParams(options)));
    } catch {
      // An address that is not encoded; as one that there is not.
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
    update(main, [h("p", { class: "muted" }, next ? "One moment …" : "There is no such page.")]);
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
    const data = await ask(context.page.url(context.params, context.options), asking.signal);
    const at = data.at_ms ?? data.now_ms;
    if (at) setClock(at);
    context.data = data;
    context.error = null;
    await context.page.loaded?.(context);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof NoAnswer)) throw error;
    context.error = error;
  }
  if (context !== current) return;
  render();
  timer = setTimeout(refresh, context.page.every ?? EVERY_MS);
}

function render() {
  const { data, error, page } = current;
  const shown = [];
  if (error) {
    const old = data ? " What is below is from before." : "";
    shown.push(h("p", { class: "failure", role: "alert" }, `${error.message}.${old}`));
  }
  if (data) shown.push(...page.view(data, current));
  update(main, shown);
  tick();
}

// Times that go on: the text of elements with data-since or data-until is made here.
function tick() {
  for (const one of main.querySelectorAll("[data-since], [data-until]")) {
    const { since, until } = one.dataset;
    const text = duration(Math.max(0, since ? now() - Number(since) : Number(until) - now()));
    if (one.textContent !== text) one.textContent = text;
  }
}

// What happens is shown at once, unless the page has asked a moment ago.
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
  (isOpen) => {
    live.textContent = isOpen ? "live" : "asking every few seconds";
    live.className = isOpen ? "is-live" : "";
  },
);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    events.stop();
    clearTimeout(timer);
  } else {
    events.start();
    refresh();
  }
});
window.addEventListener("hashchange", open);
setInterval(tick, TICK_MS);
events.start();
open();
