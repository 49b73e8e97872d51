import uPlot from "uplot";
import type { Histogram, Report, Views, WhatifPoint } from "../data";
import { colour, el, section } from "../dom";
import { bytes, count, duration, interval, rate, round, tick } from "../format";
import { axis, legendHooks, value } from "../plot";
import { onTheme } from "../theme";

export type Build = (width: number) => { options: uPlot.Options; data: uPlot.AlignedData };

/** A chart that follows its container's width and the theme. */
export function chart(build: Build, label: string): HTMLElement {
  const box = el("div", { class: "chart", role: "img", "aria-label": label });
  let plot: uPlot | null = null;
  const draw = (): void => {
    if (box.clientWidth === 0) return;
    plot?.destroy();
    const { options, data } = build(box.clientWidth);
    plot = new uPlot(options, data, box);
  };
  let width = 0;
  new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; draw(); } }).observe(box);
  onTheme(draw);
  return box;
}

export function overTime(views: Views): HTMLElement | null {
  const { ask, wait, step } = views.batches;
  if (ask.length < 2) return null;
  const data: uPlot.AlignedData = [ask, wait.map((s) => s * 1e3), step.map((s) => (s < 0 ? null : s * 1e3))];
  const build: Build = (width) => ({
    data,
    options: {
      width, height: 240, cursor: { drag: { x: true, y: false } }, scales: { x: { time: false } },
      axes: [axis(tick, { size: 34 }), axis((ms) => tick(ms / 1e3), { size: 70 })],
      series: [
        { label: "at", value: value(duration) },
        { label: "wait", stroke: colour("wait"), width: 1.5, value: value((ms) => duration(ms / 1e3)) },
        { label: "step + wait", stroke: colour("cause-compute"), width: 1.5, value: value((ms) => duration(ms / 1e3)) },
      ],
      hooks: { ...legendHooks, drawClear: [(plot) => shade(plot, views)] },
    },
  });
  return section("over-time", "Wait and step over time", chart(build, "wait of every batch, and step with wait"),
    el("p", { class: "note" }, "Shaded: warm-up, which does not count. Dashed: an epoch begins. Drag to zoom, double-click to see all."));
}

function shade(plot: uPlot, views: Views): void {
  const pen = plot.ctx, { left, top, width, height } = plot.bbox;
  const end = plot.valToPos(views.warmup_end_s, "x", true);
  pen.save();
  pen.fillStyle = colour("lane");
  if (end > left) pen.fillRect(left, top, Math.min(end - left, width), height);
  pen.strokeStyle = colour("accent");
  pen.setLineDash([6, 4]);
  for (const border of views.epochs) {
    const x = plot.valToPos(border.begin_s, "x", true);
    if (x < left || x > left + width) continue;
    pen.beginPath(); pen.moveTo(x, top); pen.lineTo(x, top + height); pen.stroke();
  }
  pen.restore();
}

export function distribution(views: Views): HTMLElement | null {
  const charts = [histogram("wait", views.wait_ms, "wait"), histogram("step + wait", views.step_ms, "cause-compute")].filter((one) => one !== null);
  return charts.length === 0 ? null : section("distribution", "How long batches and steps take", el("div", { class: "pair" }, ...charts),
    el("p", { class: "note" }, "Logarithmic scale. A bar that stands apart holds the few that are far off."));
}

function histogram(name: string, found: Histogram | null, look: string): HTMLElement | null {
  if (!found) return null;
  const most = Math.max(...found.counts, 1);
  const factor = (at: number): number => (found.edges_ms[at + 1] ?? 1) / (found.edges_ms[at] ?? 1);
  const usual = factor(Math.floor(found.counts.length / 2));
  const bars = found.counts.map((batches, at) => {
    const span = `${duration((found.edges_ms[at] ?? 0) / 1e3)} – ${duration((found.edges_ms[at + 1] ?? 0) / 1e3)}`;
    const bar = el("span", { title: `${span}: ${count(batches)}`, class: factor(at) > usual ** 1.5 ? "far" : undefined });
    bar.style.height = `${batches === 0 ? 0 : Math.max((batches / most) * 100, 2)}%`;
    bar.style.background = `var(--${look})`;
    return bar;
  });
  const first = duration((found.edges_ms[0] ?? 0) / 1e3), last = duration((found.edges_ms.at(-1) ?? 0) / 1e3);
  return el("figure", { class: "histogram" },
    el("figcaption", {}, `${name}: ${count(found.counts.reduce((a, b) => a + b, 0))} measured`),
    el("div", { class: "bars", role: "img", "aria-label": `distribution of ${name} times from ${first} to ${last}` }, ...bars),
    el("div", { class: "ends" }, el("span", {}, first), el("span", {}, last)));
}

/** Steps a second over workers; of several settings with the same workers, the one that was recorded or the first. */
export function whatif(report: Report): HTMLElement | null {
  const byWorkers = new Map<number, WhatifPoint>();
  for (const point of report.whatif?.curve ?? []) if (point.recorded || !byWorkers.has(point.workers)) byWorkers.set(point.workers, point);
  const points = [...byWorkers.values()].sort((a, b) => a.workers - b.workers);
  if (points.length < 2) return null;
  const bounds = new Map(points.map((point) => [point.workers, interval(point.low, point.high)]));
  const build: Build = (width) => ({
    data: [points.map((p) => p.workers), points.map((p) => p.high), points.map((p) => p.low), points.map((p) => p.steps_per_s)],
    options: {
      width, height: 240, scales: { x: { time: false }, y: { range: (_, __, max) => [0, max * 1.1] } },
      axes: [axis((workers) => (Number.isInteger(workers) ? `${workers}` : ""), { size: 34 }), axis((per_s) => `${round(per_s)}/s`, { size: 64 })],
      series: [
        { label: "workers", value: value((workers) => `${workers}`) },
        { label: "high", stroke: "transparent", points: { show: false } }, { label: "low", stroke: "transparent", points: { show: false } },
        {
          label: "steps a second", stroke: colour("accent"), width: 2, points: { show: true, size: 7 },
          value: (plot, per_s) => (per_s === null || per_s === undefined ? "" : `${rate(per_s)} ${bounds.get(plot.data[0][plot.cursor.idx ?? 0] ?? 0) ?? ""}`),
        },
      ],
      bands: [{ series: [1, 2], fill: `${colour("accent")}33` }],
      hooks: legendHooks,
    },
  });
  const now = points.find((point) => point.recorded)?.workers;
  const box = chart(build, "predicted steps a second over the number of workers");
  box.classList.add("with-band");
  return section("whatif", "What if there were more workers", box,
    el("p", { class: "note" }, `Predicted from this run; the band is the interval${now === undefined ? "" : `. Recorded with ${now === 1 ? "1 worker" : `${now} workers`}`}.`));
}

export function memory(report: Report): HTMLElement | null {
  const found = report.memory;
  if (!found || found.lines.length === 0) return null;
  const { lines } = found;
  const at = [...new Set(lines.flatMap((line) => line.at_s))].sort((a, b) => a - b);
  const place = new Map(at.map((value, index) => [value, index]));
  const palette = ["accent", "cause-cpu", "cause-remote", "cause-handoff", "cause-order", "cause-disk", "cause-collate"];
  const build: Build = (width) => ({
    data: [at, ...lines.map((line) => {
      const column: (number | null | undefined)[] = new Array<number | undefined>(at.length).fill(undefined);
      line.at_s.forEach((when, i) => { column[place.get(when) ?? 0] = line.bytes[i] ?? 0; });
      return column as (number | null)[];
    })],
    options: {
      width, height: 220, scales: { x: { time: false }, y: { range: (_, __, max) => [0, Math.max(max, 1) * 1.1] } },
      axes: [axis(tick, { size: 34 }), axis(bytes, { size: 76 })],
      series: [
        { label: "at", value: value(duration) },
        ...lines.map((line, i): uPlot.Series => ({
          label: line.name, stroke: colour(palette[i % palette.length] ?? "accent"), width: 1.5, spanGaps: true,
          value: value(bytes),
        })),
      ],
      hooks: legendHooks,
    },
  });
  const drawn = at.length > 1 ? [chart(build, "memory of training, workers and shared memory")] : [];
  return section("memory", "Memory over time", ...drawn, el("p", { class: "note" }, peaks(found)));
}

function peaks(found: NonNullable<Report["memory"]>): string {
  const known: [string, number | null][] = [
    ["training", found.training_peak_bytes], ["workers together", found.workers_peak_bytes], ["/dev/shm", found.shm_peak_bytes],
  ];
  const told = known.flatMap(([name, peak]) => (peak === null ? [] : [`${name} ${bytes(peak)}`]));
  const room = found.shm_total_bytes === null || found.shm_peak_bytes === null ? "" : ` of ${bytes(found.shm_total_bytes)}`;
  const own = found.workers_uss_peak_bytes ?? null;
  const shared = own === null || found.workers_peak_bytes === null ? "" : ` ${bytes(Math.max(found.workers_peak_bytes - own, 0))} of the workers' memory is shared.`;
  return `Most at once: ${told.join(", ")}${room}.${shared} What a forked worker shares with training counts in both; PSS divides it among them, USS leaves it out.`;
}
