// One group: the awaited members, the last rebalance or assignment, the members and their positions.

import { path } from "./api.js";
import { h } from "./dom.js";
import { clock, count, counted, duration, glued, shortId } from "./format.js";
import { advice } from "./advice.js";
import { age, figures, findingList, groupTabs, heading, lagLine, memberName, moment, ranges, since, sparkline, stateMark, table, to, topicLink, until } from "./parts.js";

export const group = {
  title: (id) => id,
  path: (id) => `/groups/${encodeURIComponent(id)}`,
  url: ([id]) => path("groups", id),
  concerns: (changed, { params }) => !changed || changed.has(params[0]),
  every: 3000,
  view,
};

const PHASES = {
  initial_delay: "The first members have joined; the coordinator waits for more.",
  join: "Members revoke partitions and rejoin.",
  assign: "All members have joined; the leader computes the assignment.",
  store: "The assignment is being stored.",
  sync: "Members fetch their assignment.",
  revoke: "Members revoke partitions and confirm it with a heartbeat.",
  tell: "Members learn of the assignment with their next heartbeat.",
  give: "Members get free partitions with their next heartbeat.",
};
const INTERVAL = "The broker assigns when the assignment interval is over.";

function view(data, context) {
  // A hang is the headline of the current rebalance.
  const findings = data.findings.filter((finding) => finding.check !== "hangs" || !data.waiting);
  return [
    heading("Groups", data.group),
    groupTabs(data.group, "Now", data.type),
    figures([
      ["State", stateMark(data.state)],
      [["consumer", "share"].includes(data.type) ? "Epoch" : "Generation", count(data.generation)],
      ["Members", count(data.member_count)],
      ["Lag", count(data.lag)],
      ...(data.share ? [] : [["Behind", age(data.lag_ms)]]),
      ["Assignor", data.protocol ?? "–"],
      [data.share ? "Assignments, last hour" : "Rebalances, last hour", sparkline(data.last_hour, noun(data))],
      ...(data.lag_last_hour.length > 1 ? [["Lag, last hour", lagLine(data.lag_last_hour, data.at_ms)]] : []),
    ]),
    waiting(data),
    findings.length > 0 && h("section", { "aria-label": "Checks" }, findingList(findings)),
    last(data),
    members(data),
    data.share ? sharePartitions(data.share) : partitions(data),
    data.share && archived(data.share.archived),
    !data.share && advice(data.group, context),
  ];
}

function waiting({ waiting, findings }) {
  if (!waiting) return null;
  const hang = findings.find((finding) => finding.check === "hangs");
  const left = waiting.member_count - waiting.members.length;
  return h(
    "section",
    { class: "waiting", "aria-labelledby": "waiting" },
    h("h2", { id: "waiting" }, "Current rebalance"),
    h("p", { class: "headline" }, glued(hang ? hang.text : `The group waits ${waiting.text}.`)),
    hang && h("p", { class: "muted" }, hang.advice),
    !hang && h("p", null, "Waiting ", since(waiting.since_ms), waiting.until_ms !== null && [", up to ", until(waiting.until_ms), " more"], `. ${waiting.phase === "assign" && !waiting.member_count ? INTERVAL : (PHASES[waiting.phase] ?? "")}`),
    waiting.members.length > 0 &&
      h(
        "ul",
        { class: "awaited" },
        waiting.members.map((member) =>
          h(
            "li",
            { "data-key": member.member_id },
            memberName(member),
            h("span", { class: "muted" }, ` ${[member.instance_id ? shortId(member.member_id) : !member.member_id.startsWith(member.client_id) && member.client_id, member.host?.replace(/^\//, "")].filter(Boolean).join(", ")}`),
          ),
        ),
        left > 0 && h("li", { class: "muted" }, `and ${counted(left, "more member")}`),
      ),
    waiting.pending_count > 0 && h("p", { class: "muted" }, `${counted(waiting.pending_count, "member id")} assigned, but not used to join yet.`),
  );
}

// A share group has assignments instead of rebalances: its members do not stop.
function noun(data) {
  return data.share ? "assignment" : "rebalance";
}

function last(data) {
  const { group: id, last: record, act } = data;
  if (!record) return h("p", { class: "muted" }, `The history has no ${noun(data)} of this group.`);
  return h(
    "section",
    { "aria-labelledby": "last" },
    h("h2", { id: "last" }, `The ${record.outcome === "running" ? "running" : "last"} ${noun(data)}`),
    act && h("p", { class: "headline" }, glued(`From ${clock(act.started_at_ms)}: ${act.text}. `), h("a", { href: to("groups", id, "timeline") }, "All its rebalances")),
    h("p", { class: "headline" }, glued(`It ${record.sentence}.`)),
    h("details", null, h("summary", null, "Evidence"), h("ul", null, record.evidence.map((line) => h("li", { class: "id" }, glued(line))))),
    !data.share && h("p", null, h("a", { href: to("groups", id, "timeline", record.sequence) }, "Who waited for whom")),
  );
}

function members(data) {
  if (!data.members.length) return h("p", { class: "muted" }, "The group has no members.");
  const sums = new Map();
  for (const partition of data.partitions)
    if (partition.member_id) sums.set(partition.member_id, (sums.get(partition.member_id) ?? 0) + (partition.lag ?? 0));
  const rest = data.member_count - data.members.length;
  const columns = [
    ["Member", "id", (row) => [memberName(row), row.role === "leader" && h("span", { class: "tag" }, "leader"), row.instance_id && h("div", { class: "muted", title: row.member_id }, shortId(row.member_id))]],
    ["Client", "id", (row) => [row.client_id, h("div", { class: "muted" }, row.host.replace(/^\//, ""))]],
    ["Session", "number", (row) => duration(row.session_timeout_ms)],
    // Members of consumer and share groups do not name assignors; share groups have no lag for each member.
    data.members.some((row) => row.protocols.length) && ["Assignors", "", (row) => row.protocols.join(", ")],
    ["Partitions", "", (row) => share(row)],
    !data.share && ["Lag", "number", (row) => count(sums.get(row.member_id) ?? (row.partition_count === 0 ? 0 : null))],
  ].filter(Boolean);
  return h(
    "section",
    { "aria-labelledby": "members" },
    h("h2", { id: "members" }, "Members"),
    table("Members", columns, data.members, (row) => row.member_id),
    rest > 0 && h("p", { class: "muted" }, `and ${counted(rest, "more member")}`),
  );
}

function share(row) {
  if (row.assignment === null) return row.assignment_bytes ? `${count(row.assignment_bytes)} bytes` : "–";
  const text = Object.entries(row.assignment).map(([topic, numbers]) => `${topic}: ${ranges(numbers)}`);
  return [h("span", { class: "number" }, counted(row.partition_count, "partition")), text.map((line) => h("div", { class: "muted id" }, line))];
}

function sharePartitions({ share_partitions: rows, share_partition_count: total }) {
  if (!rows.length) return h("p", { class: "muted" }, "The group has no share-partitions.");
  const columns = [
    ["Partition", "id", (row) => [topicLink(row.topic), `-${row.partition}`]],
    ["Start", "number", (row) => count(row.start)],
    ["Last acquired", "number", (row) => count(row.end)],
    ["Lag", "number", (row) => count(row.lag)],
    ["Available", "number", (row) => count(row.available)],
    ["Locked", "number", (row) => count(row.acquired)],
    ["Finished", "number", (row) => count(row.finished)],
    ["Deliveries", "number", (row) => count(row.counts.deliveries)],
    ["Released", "number", (row) => count(row.counts.releases)],
    ["Lock timeouts", "number", (row) => count(row.counts.lock_timeouts)],
    ["Oldest lock", "", (row) => oldestLock(row)],
  ];
  return h(
    "section",
    { "aria-labelledby": "partitions" },
    h("h2", { id: "partitions" }, "Share-partitions"),
    table("Share-partitions", columns, rows, (row) => `${row.topic}-${row.partition}`),
    total > rows.length && h("p", { class: "muted" }, `and ${counted(total - rows.length, "more share-partition")}`),
  );
}

function oldestLock({ oldest_lock: lock, text }) {
  const evidence = h("details", null, h("summary", null, "Why"), h("ul", null, text.map((line) => h("li", null, glued(line)))));
  if (!lock) return evidence;
  return [`record ${count(lock.offset)}, delivery ${lock.delivery_count}, `, memberName(lock), ", for ", since(lock.since_ms), evidence];
}

function archived(rows) {
  if (!rows.length) return null;
  const columns = [
    ["Records", "id", (row) => [topicLink(row.topic), `-${row.partition}: ${row.first_offset === row.last_offset ? row.first_offset : `${row.first_offset} to ${row.last_offset}`}`]],
    ["Because", "", (row) => (row.dead_letter?.topic ? [row.how, ", dead letter in ", topicLink(row.dead_letter.topic)] : row.how)],
    ["Delivery", "number", (row) => row.delivery_count || "–"],
    ["Member", "id", (row) => (row.member_id ? memberName(row) : "–")],
    ["When", "number", (row) => moment(row.at_ms)],
  ];
  return h(
    "section",
    { "aria-labelledby": "archived" },
    h("h2", { id: "archived" }, "Archived records"),
    h("p", { class: "muted" }, "They are not delivered again."),
    table("Archived records", columns, [...rows].reverse(), (row) => `${row.topic}-${row.partition}-${row.first_offset}-${row.at_ms}`),
  );
}

function partitions(data) {
  if (!data.partitions.length) return h("p", { class: "muted" }, "The group has committed no offsets.");
  const members = new Map(data.members.map((member) => [member.member_id, member]));
  const columns = [
    ["Partition", "id", (row) => [topicLink(row.topic), `-${row.partition}`]],
    ["Member", "id", (row) => (row.member_id ? memberName(members.get(row.member_id) ?? row) : "–")],
    ["Committed", "number", (row) => count(row.committed)],
    ["End", "number", (row) => count(row.end)],
    ["Lag", "number", (row) => count(row.lag)],
    ["Behind", "number", (row) => age(row.lag_ms)],
    ["Last commit", "number", (row) => moment(row.committed_at_ms)],
  ];
  const rest = data.partition_count - data.partitions.length;
  const assigned = data.members.reduce((sum, member) => sum + (member.partition_count ?? 0), 0);
  const unread = rest ? 0 : assigned - data.partitions.filter((row) => row.member_id).length;
  return h(
    "section",
    { "aria-labelledby": "partitions" },
    h("h2", { id: "partitions" }, "Partitions"),
    table("Partitions", columns, data.partitions, (row) => `${row.topic}-${row.partition}`),
    rest > 0 && h("p", { class: "muted" }, `and ${counted(rest, "more partition")} with less lag than these`),
    unread > 0 && h("p", { class: "muted" }, `${counted(unread, "assigned partition")} without a committed offset, which the lag does not include.`),
  );
}
