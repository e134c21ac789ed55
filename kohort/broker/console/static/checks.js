// The findings of the checks of all groups' settings.

import { h } from "./dom.js";
import { count, counted } from "./format.js";
import { findingList, groupLink } from "./parts.js";

export const checks = {
  title: () => "Checks",
  path: () => "/checks",
  url: () => "/api/checks",
  every: 10_000,
  view,
};

function view(data) {
  const warned = data.groups.filter((group) => group.findings.some((finding) => finding.is_warning));
  const noted = data.groups.filter((group) => !warned.includes(group));
  const counts = Object.entries(data.counts);
  return [
    h("h1", null, "Checks"),
    h("p", { class: "muted" }, `${counted(data.looked_at, "group")} checked. A group's own page can compute the cost of other settings.`),
    counts.length > 0 && h("ul", { class: "legend" }, counts.map(([name, number]) => h("li", null, `${name.replaceAll("-", " ")}: ${count(number)}`))),
    warned.map(section),
    noted.length > 0 && h("details", { "data-key": "notes" }, h("summary", null, `${counted(noted.length, "group")} with notes only`), noted.map(section)),
    !data.groups.length && h("p", null, "No findings."),
  ];
}

function section(group) {
  return h("section", { "data-key": group.group }, h("h2", { class: "id" }, groupLink(group.group)), findingList(group.findings));
}
