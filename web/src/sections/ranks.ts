// Which rank made the others wait, and when: a row per rank, a column per stretch of the steps.
import type { Ranks, Report } from "../data";
import { el, section, table } from "../dom";
import { count, duration, percent } from "../format";

const MOST_ROWS = 256; // of more ranks, several share a row: the latest of them is shown
const TALLEST_ROW = 22, TALLEST = 512;
const MOST_TICKS = 12, WORST = 8;

export function ranks(report: Report): HTMLElement | null {
  const found = report.ranks;
  if (!found) return null;
  const heat = found.heat;
  const worst = [...found.by_rank].sort((a, b) => b.lost_ms - a.lost_ms).slice(0, WORST);
  const seconds = (ms: number): string => duration(ms / 1e3);
  return section("ranks", "Ranks",
    el("p", { class: "outside" }, `A step takes ${seconds(found.step_ms)}. If no rank came late it would take ${seconds(found.even_ms)}, ` +
      `if loading were free on all ranks ${seconds(found.free_ms)}.`),
    heat ? heatMap(found) : el("p", { class: "outside" }, "No rank made the others wait for long."),
    table(["rank", "machine", "came last", "cost the others", "waits for data", "works", "waits for ranks"],
      worst.map((one) => [one.rank, one.host, percent(one.late_share), one.lost_ms > 0 ? `${seconds(one.lost_ms)} a step` : "–", seconds(one.wait_ms),
        seconds(one.work_ms), one.blocked_ms === null ? "unknown" : seconds(one.blocked_ms)]), [0, 2, 3, 4, 5, 6]),
    found.by_rank.length > WORST && el("p", { class: "outside" }, `The ${WORST} that cost the others most, of ${count(found.by_rank.length)}.`));
}

function heatMap(found: Ranks): HTMLElement {
  const { rows, longest_ms, stretch_steps } = found.heat as NonNullable<Ranks["heat"]>;
  const together = Math.ceil(rows.length / MOST_ROWS);
  const shown = Array.from({ length: Math.ceil(rows.length / together) }, (_, at) => latest(rows.slice(at * together, (at + 1) * together)));
  const columns = shown[0]?.length ?? 0;
  const height = Math.max(Math.min(TALLEST_ROW * shown.length, TALLEST), shown.length * 2);
  const canvas = el("canvas", { width: columns, height: shown.length, class: "heat", role: "img",
    "aria-label": `Time that each of ${rows.length} ranks cost the others; the table below lists the worst` });
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  shown.forEach((row, y) => row.forEach((value, x) => {
    if (!context || value === 0) return;
    context.fillStyle = `rgba(220, 74, 70, ${0.12 + 0.88 * value / 100})`; // reads on both themes
    context.fillRect(x, y, 1, 1);
  }));
  const said = el("p", { class: "heat-said", "aria-live": "polite" }, together > 1 ? `Each row is the latest of ${together} ranks.` : "Each row is a rank.");
  const name = (y: number): string => {
    const first = found.by_rank[y * together], last = found.by_rank[Math.min((y + 1) * together, rows.length) - 1];
    return !first || !last ? "" : first === last ? `rank ${first.rank} on ${first.host}` : `ranks ${first.rank}–${last.rank}`;
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.min(Math.max(Math.floor((event.clientX - box.left) / box.width * columns), 0), columns - 1);
    const y = Math.min(Math.max(Math.floor((event.clientY - box.top) / box.height * shown.length), 0), shown.length - 1);
    const cost = duration((shown[y]?.[x] ?? 0) / 100 * longest_ms / 1e3);
    said.textContent = `${name(y)}, steps ${x * stretch_steps}–${(x + 1) * stretch_steps}: cost the others ${cost} a step`;
  });
  const every = Math.ceil(shown.length / MOST_TICKS);
  const ticks = shown.flatMap((_, y) => {
    if (y % every !== 0) return [];
    const tick = el("span", {}, found.by_rank[y * together]?.rank ?? "");
    tick.style.top = `${(y + 0.5) / shown.length * 100}%`;
    return [tick];
  });
  const scale = el("p", { class: "heat-scale" }, el("span", {}, "first step"), el("span", {}, "0 ", el("i", { "aria-hidden": "true" }), ` ${duration(longest_ms / 1e3)} a step`), el("span", {}, "last step"));
  return el("div", {}, el("div", { class: "heat-map" }, el("div", { class: "heat-ranks", "aria-hidden": "true" }, ...ticks), canvas), scale, said);
}

function latest(rows: number[][]): number[] {
  return (rows[0] ?? []).map((_, x) => Math.max(...rows.map((row) => row[x] ?? 0)));
}
