// A rebalance as a diagram: a bar for each member, with its phases from left to right. The same
// phases as `kohort groups timeline` draws in a terminal.

import { h } from "./dom.js";
import { count, counted, duration, glued, isUnsure, shortId } from "./format.js";

const MEMBERS = 100;
const WIDE = 1000;
// A member whose application polls joins sooner; one that takes longer is drawn as "no answer".
const SILENT_MS = 10_000;

// Phases also differ in height, so that the diagram can be read without colours.
const PHASES = {
  works: [7, 2, "works"],
  told: [5, 6, "revokes partitions"],
  joined: [2, 12, "waits for the others"],
  assigned: [3, 10, "waits for its assignment"],
  silent: [3, 10, "no answer"],
};
// `kohort watch` does not know when each member joined, only when all members had joined.
const PHASES_WITHOUT_JOINS = {
  works: PHASES.works,
  joins: [3, 10, "joins or still works"],
  assigned: PHASES.assigned,
};
// A consumer group has no barrier: each member moves on with its own heartbeats.
const PHASES_OF_CONSUMERS = {
  ...PHASES,
  joined: [2, 12, "waits for partitions of others"],
  assigned: [3, 10, "has sent no heartbeat since the assignment"],
};

/** The elements that show one record. */
export function waterfall(record) {
  const lead = [
    h("p", { class: "headline" }, glued(`It ${record.sentence}.`)),
    h("details", null, h("summary", null, "Evidence"), h("ul", null, record.evidence.map((line) => h("li", { class: "id" }, glued(line))))),
  ];
  if (record.kind !== "rebalance") return lead;
  const sorted = slowestFirst(record);
  const drawn = sorted.slice(0, MEMBERS);
  const end = endOf(record, drawn);
  const rest = sorted.length - drawn.length + record.members_dropped;
  const ofConsumers = record.group_type === "consumer";
  const mark = ofConsumers ? record.timeline.durable_ms : joinPhase(record);
  return [
    ...lead,
    h("ul", { class: "legend" }, Object.entries(phasesFor(record)).map(([name, [y, tall, text]]) => h("li", null, h("svg", { class: "key", viewBox: "0 0 24 16", "aria-hidden": "true" }, h("rect", { y, width: 24, height: tall, class: `phase ${name}` })), text))),
    h("p", { class: "muted scale" }, h("span", null, "0"), mark !== null && h("span", null, `${ofConsumers ? "assigned" : "joins ended"} after ${record.started_between_ms ? "about " : ""}${duration(mark)}`), h("span", null, duration(end))),
    h("ol", { class: "waterfall" }, drawn.map((member) => row(member, record, end))),
    rest > 0 && h("p", { class: "muted" }, `and ${counted(rest, "more member")}${ofConsumers || !hasJoins(record) ? "" : ", which were stopped for less time"}`),
    record.partitions.known && h("p", null, `Partitions: ${count(record.partitions.kept)} kept, ${count(record.partitions.moved)} moved, ${count(record.partitions.gained)} gained, ${count(record.partitions.given_up)} revoked.`),
  ];
}

function phasesFor(record) {
  if (record.group_type === "consumer") return PHASES_OF_CONSUMERS;
  return hasJoins(record) ? PHASES : PHASES_WITHOUT_JOINS;
}

function hasJoins(record) {
  return record.outcome !== "stable" || record.members.some((member) => member.join_received_ms !== null);
}

// The duration of the join phase. If it is unknown, the time to the latest possible start of the rebalance.
function joinPhase(record) {
  const phase = record.timeline.join_phase_ms;
  return phase === null && record.started_between_ms ? Math.max(record.started_between_ms[1] - record.started_at_ms, 0) : phase;
}


function slowestFirst(record) {
  const named = new Set([record.trigger.member_id, ...(record.waited_for?.member_ids ?? [])]);
  const weight = (member) => (named.has(member.member_id) ? 1e12 : 0) + (record.group_type === "consumer" ? (member.completed_ms ?? 1e11) : (member.stopped_ms ?? 0));
  return [...record.members].sort((a, b) => weight(b) - weight(a));
}

// The end of the diagram: the time at which the last of these members works again.
function endOf(record, members) {
  const times = [record.timeline.finished_ms, joinPhase(record), 1];
  if (record.outcome === "running") times.push(record.now_ms - record.started_at_ms);
  for (const member of members) times.push(member.completed_ms, member.sync_answered_ms, member.join_answered_ms, member.fate_ms);
  return Math.max(...times.filter((time) => time !== null && time !== undefined));
}

// The phases of a member with the times at which they begin; null for phases that the member did not reach.
function startsOf(member, record, end) {
  if (record.group_type !== "consumer" && !hasJoins(record)) {
    const isGone = member.fate_ms !== null;
    return [["joins", 0], ["assigned", isGone ? null : joinPhase(record)], ["works", isGone ? null : record.timeline.durable_ms]];
  }
  if (record.group_type !== "consumer")
    return [[(member.join_received_ms ?? member.fate_ms ?? end) - member.told_ms < SILENT_MS ? "told" : "silent", member.told_ms], ["joined", member.join_received_ms], ["assigned", member.join_answered_ms], ["works", member.sync_answered_ms]];
  const durable = record.timeline.durable_ms;
  const waits = member.told_ms === null || durable === null || durable <= member.told_ms;
  return [["assigned", waits ? durable : null], ["told", member.told_ms], ["joined", member.reached_ms], ["works", member.completed_ms]];
}

function phasesOf(member, record, end) {
  const last = member.fate_ms === null ? end : Math.min(member.fate_ms, end);
  const starts = [[member.fate === "new" ? "absent" : "works", 0]];
  for (const [name, at] of startsOf(member, record, end)) if (at !== null) starts.push([name, Math.max(at, 0)]);
  return starts.map(([name, at], place) => [name, at, Math.min(starts[place + 1]?.[1] ?? last, last)]).filter(([name, at, until]) => name !== "absent" && (record.group_type === "consumer" ? until > at : until >= at));
}

function row(member, record, end) {
  const bars = phasesOf(member, record, end).map(([name, from, until]) => {
    const [y, tall, text] = phasesFor(record)[name];
    const x = (from / end) * WIDE;
    const wide = Math.max(((until - from) / end) * WIDE, name === "works" ? 0 : 2);
    return h("rect", { x, y, width: wide, height: tall, class: `phase ${name}` }, h("title", null, `${text}: ${duration(from)} to ${duration(until)}`));
  });
  if (member.fate_ms !== null) {
    const x = Math.min((Math.min(member.fate_ms, end) / end) * WIDE, WIDE - 5);
    bars.push(h("rect", { x, y: 1, width: 5, height: 14, class: `phase gone${isUnsure(member) ? " unsure" : ""}` }, h("title", null, `left or removed after ${duration(member.fate_ms)}${isUnsure(member) ? ` (${member.certainty})` : ""}`)));
  }
  return h(
    "li",
    { "data-key": member.member_id },
    h("span", { class: `id${member.fate_ms === null ? "" : " bad"}`, title: member.member_id }, member.instance_id ?? (member.mode === "consumer" && member.client_id ? `${member.client_id} ${shortId(member.member_id)}` : shortId(member.member_id)), member.member_id === record.leader && h("span", { class: "tag" }, "leader")),
    h("svg", { viewBox: `0 0 ${WIDE} 16`, preserveAspectRatio: "none", role: "img", "aria-label": description(member, record) }, bars),
    h("span", { class: "note" }, note(member, record)),
    moves(member.partitions),
  );
}

function note(member, record) {
  if (member.fate !== "kept" && member.fate !== "new") return `${member.fate.replaceAll("_", " ")}${isUnsure(member) ? ` (${member.certainty})` : ""}`;
  if (member.mode === "consumer") return `${member.fate === "new" ? "new, " : ""}${member.completed_ms === null ? "not complete yet" : `complete after ${duration(member.completed_ms)}`}`;
  if (member.stopped_ms === null && !hasJoins(record)) return member.fate === "new" ? "new" : "";
  if (member.stopped_ms === null) return record.outcome === "running" ? "has not joined" : "did not join";
  const text = stopText(member);
  return member.stopped_open ? `${text} so far` : text;
}

/** A cooperative member continues to read the partitions that it keeps (KIP-429). */
function stopText(member) {
  const time = duration(member.stopped_ms);
  if (member.mode === "cooperative") return member.stopped_ms ? `gained partitions after ${time}` : "kept consuming";
  return `${member.fate === "new" ? "new, waited" : "stopped"} ${time}`;
}

function description(member, record) {
  const parts = [note(member, record)];
  if (member.told_ms !== null && member.join_received_ms !== null) parts.push(`took ${duration(Math.max(member.join_received_ms - member.told_ms, 0))} to join`);
  return parts.join(", ");
}

function moves(partitions) {
  if (!partitions.known || !(partitions.gained_count || partitions.given_up_count)) return null;
  const some = (names, total) => `${names.join(", ")}${total > names.length ? ` and ${count(total - names.length)} more` : ""}`;
  return h(
    "details",
    { class: "moves" },
    h("summary", null, `${partitions.gained_count ? `+${count(partitions.gained_count)}` : ""} ${partitions.given_up_count ? `−${count(partitions.given_up_count)}` : ""}`, " partitions"),
    partitions.given_up_count > 0 && h("p", { class: "id" }, `revoked ${some(partitions.given_up, partitions.given_up_count)}`),
    partitions.gained_count > 0 && h("p", { class: "id" }, `gained ${some(partitions.gained, partitions.gained_count)}`),
  );
}
