import type { Comparison, OneRun } from "../data";
import { el, section, table } from "../dom";
import { duration, percent, points, rate, times } from "../format";
import { advice } from "./verdict";
import { budget } from "./budget";
import { distribution, overTime } from "./charts";
import { timeline } from "./timeline";

export function comparison(found: Comparison, a: OneRun, b: OneRun): (HTMLElement | null)[] {
  const better = found.change?.shown ? (found.change.ratio >= 1 ? "fed" : "starved") : "inconclusive";
  const rows = found.rows.map((row) => [row.label, shown(row.a, row.unit), shown(row.b, row.unit), change(row)]);
  return [
    el("section", { id: "verdict", class: `card state-${better}`, "aria-label": "comparison" },
      el("p", { class: "badge" }, "A against B"), el("h1", {}, found.headline),
      el("ul", { class: "evidence" }, ...found.notes.map((note) => el("li", {}, note)), ...found.gates.map((gate) => el("li", {}, `${gate.failed ? "✗" : "✓"} ${gate.expression}: ${gate.reason}`)))),
    section("numbers", "Numbers", table(["", `A  ${name(a)}`, `B  ${name(b)}`, "B against A"], [
      ["state", a.report.verdict.state, b.report.verdict.state, ""], ...rows], [1, 2, 3])),
    operators(found),
    el("div", { class: "sides" }, side("A", a), side("B", b)),
  ];
}

function operators(found: Comparison): HTMLElement | null {
  const changed = found.operators ?? [];
  if (changed.length === 0) return null;
  return section("operators", "Operators that changed, per step", table(["operator", "A", "B", "B against A"],
    changed.map((o) => [el("code", {}, o.name), duration(o.a_s), duration(o.b_s), o.a_s === 0 ? "new" : o.b_s === 0 ? "gone" : times(o.b_s / o.a_s)]), [1, 2, 3]));
}

function side(letter: string, run: OneRun): HTMLElement {
  const parts = [budget(run.report), run.views && timeline(run.views), run.views && overTime(run.views), run.views && distribution(run.views), advice(run.report)];
  for (const part of parts) prefix(part, letter);
  return el("div", { class: "side" }, el("p", { class: "side-name" }, el("b", {}, letter), ` ${run.report.verdict.headline}`), ...parts);
}

/** Two of each section on one page: their ids must differ. */
function prefix(part: HTMLElement | null, letter: string): void {
  if (!part) return;
  for (const marked of [part, ...part.querySelectorAll("[id]")]) if (marked.id) marked.id = `${letter}-${marked.id}`;
  const label = part.getAttribute("aria-labelledby");
  if (label) part.setAttribute("aria-labelledby", `${letter}-${label}`);
}

const name = (run: OneRun): string => run.report.run.path.split("/").at(-1) ?? "";

function shown(value: number | null, unit: string): string {
  if (value === null) return "–";
  if (unit === "ms") return duration(value / 1e3);
  return unit === "%" ? percent(value) : `${rate(value)} ${unit}`;
}

function change(row: { a: number | null; b: number | null; unit: string }): string {
  if (row.a === null || row.b === null) return "";
  if (row.unit === "%") return points(row.b - row.a);
  return row.a === 0 ? "" : times(row.b / row.a);
}
