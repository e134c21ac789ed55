// What in groups' settings is worth a look, of all groups.

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
  const found = Object.entries(data.counts);
  return [
    h("h1", null, "Checks"),
    h("p", { class: "muted" }, `${counted(data.looked_at, "group")} looked at. What other settings would have cost, a group's own page works out.`),
    found.length > 0 && h("ul", { class: "legend" }, found.map(([name, number]) => h("li", null, `${name.replaceAll("-", " ")}: ${count(number)}`))),
    data.groups.length
      ? data.groups.map((one) => h("section", { "data-key": one.group }, h("h2", { class: "id" }, groupLink(one.group)), findingList(one.findings)))
      : h("p", null, "Nothing is worth a look."),
  ];
}
