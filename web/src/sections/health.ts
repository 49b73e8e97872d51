import type { Finding, Report } from "../data";
import { breakable, el, section } from "../dom";
import { code } from "./verdict";

/** What the run shows to be wrong, the worst first: what was seen, why it matters and what to change. */
export function health(report: Report): HTMLElement | null {
  if (report.health.length === 0) return null;
  return section("health", "Health", el("ul", { class: "health" }, ...report.health.map(one)));
}

function one(finding: Finding): HTMLElement {
  const place = finding.file ? `${finding.file}${finding.line ? `:${finding.line}` : ""}` : null;
  const sentence = finding.fix.endsWith(".");
  return el("li", { class: `severity-${finding.severity}` },
    el("b", {}, breakable(finding.message)),
    el("p", {}, finding.why),
    sentence ? el("p", { class: "fix" }, breakable(finding.fix)) : code(finding.fix),
    el("small", {}, `${finding.severity}: ${finding.id}`, place && " · ", place && breakable(place)));
}
