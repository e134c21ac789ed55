// Formats numbers, times and durations; durations in the same format as the command line.

const COUNT = new Intl.NumberFormat("en");
const DAY_MS = 86_400_000;

/** How far the broker's clock is ahead of this machine's. */
let ahead = 0;

/** Store the broker's wall time, from a response. */
export function setClock(brokerMs) {
  ahead = brokerMs - Date.now();
}

/** The broker's wall time now. */
export function now() {
  return Date.now() + ahead;
}

/** 1,234; a dash if it is unknown. */
export function count(number) {
  return number === null || number === undefined ? "–" : COUNT.format(number);
}

/** 1 member, 2 members. */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** 850 ms, 3.2 s, 45 s, 5 min 30 s, 3 h 20 min, 4 d 2 h. */
export function duration(ms) {
  // A number and its unit stay on one line.
  return text(ms).replaceAll(" ", "\u00a0");
}

function text(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${(Math.round(ms / 100) / 10).toFixed(1).replace(/\.0$/, "")} s`;
  if (ms < 3_600_000) return two(ms, 60_000, "min", 1000, "s");
  if (ms < 2 * DAY_MS) return two(ms, 3_600_000, "h", 60_000, "min");
  return two(ms, DAY_MS, "d", 3_600_000, "h");
}

function two(ms, large, largeName, small, smallName) {
  const rest = Math.floor((ms % large) / small);
  const first = `${Math.floor(ms / large)} ${largeName}`;
  return rest ? `${first} ${rest} ${smallName}` : first;
}

/** How long ago: "12 s ago". */
export function ago(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  return now() - ms < 1000 ? "just now" : `${duration(floor(now() - ms))} ago`;
}

// Whole seconds: tenths change too fast to read.
function floor(ms) {
  return Math.floor(ms / 1000) * 1000;
}

/** The time of day in UTC, as everywhere in Kohort, with the date if it is another day: "14:03:07", "Jan 12, 14:03:07". */
export function clock(ms) {
  const time = new Date(ms).toISOString().slice(11, 19);
  return day(ms) === day(now()) ? time : `${day(ms)}, ${time}`;
}

/** "14:03:07.123", with the date if it is another day; a time that a client gave may be any number. */
export function precise(ms) {
  if (Math.abs(ms) > 8.64e15) return String(ms);
  const time = new Date(ms).toISOString().slice(11, 23);
  return day(ms) === day(now()) ? time : `${day(ms)}, ${time}`;
}

/** Jan 12, in UTC; with the year, if it is another one. */
export function day(ms) {
  const isOther = new Date(ms).getUTCFullYear() !== new Date(now()).getUTCFullYear();
  return new Date(ms).toLocaleDateString("en", { year: isOther ? "numeric" : undefined, month: "short", day: "numeric", timeZone: "UTC" });
}

/** A member id with the first digits of its random part: "app-1-3f2a…". */
export function shortId(id) {
  return id.replace(/(^|-)([0-9a-f]{4})[0-9a-f]{4}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, "$1$2…");
}

/** 1.5 MiB. */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (size >= 1024 && place < units.length - 1) {
    size /= 1024;
    place += 1;
  }
  return `${place ? size.toFixed(size < 10 ? 1 : 0) : size} ${units[place]}`;
}

const CAUSES = {
  member_added: "member joined",
  static_added: "static member joined",
  static_replaced: "static member returned",
  protocols_changed: "subscription or assignor changed",
  leader_rejoined: "leader joined again",
  follower_rejoined: "member joined again",
  forced_by_reason: "requested by a client",
  member_left: "member left",
  removed_by_admin: "removed by an administrator",
  session_expired: "session timed out",
  new_member_expired: "first join took too long",
  sync_expired: "assignment not fetched",
  store_failed: "assignment not stored",
  over_capacity: "too many members",
  size_refused: "group is full",
};

/** A few words for a kind of cause. */
export function cause(kind) {
  return CAUSES[kind] ?? String(kind).replaceAll("_", " ");
}

const FAMILIES = {
  came: ["member_added", "static_added", "static_replaced"],
  left: ["member_left", "removed_by_admin"],
  lost: ["session_expired", "new_member_expired", "sync_expired"],
  again: ["leader_rejoined", "follower_rejoined", "protocols_changed", "forced_by_reason"],
};

/** A text in which no line ends between a number and its unit, or within an arrow. */
export function glued(text) {
  return text.replace(/(\d) (ms|s|min|h|d)\b/g, "$1\u00a0$2").replace(/(\d) -> (\d)/g, "$1 → $2");
}

/** The family of a cause, which determines its colour. */
export function family(kind) {
  for (const [name, kinds] of Object.entries(FAMILIES)) if (kinds.includes(kind)) return name;
  return "other";
}

/** Whether the cause of a rebalance, or how a member left, is a conclusion of `kohort watch` that may be wrong. */
export function isUnsure(one) {
  return (one.certainty ?? "certain") !== "certain";
}
