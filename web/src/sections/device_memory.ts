import uPlot from "uplot";
import type { AllocatedBy, DeviceMemory, Profile } from "../data";
import { colour, el, table } from "../dom";
import { bytes, count, duration, tick } from "../format";
import { axis, legendHooks, value } from "../plot";
import { type Build, chart } from "./charts";

/** Tensors on each device over the profiled window, and who allocated them. */
export function deviceMemory(p: Profile): HTMLElement[] {
  const steps = Math.max(p.steps, 1);
  return (p.memory ?? []).flatMap((memory) => [
    el("h3", {}, `Tensors on ${memory.device}`),
    chart(timeline(memory), `memory of tensors on ${memory.device} over the profiled window`),
    el("p", { class: "note" }, told(memory)),
    ...by("phase", memory.by_phase, steps),
    ...by("operator", memory.by_operator.slice(0, 10), steps),
  ]);
}

const timeline = (memory: DeviceMemory): Build => (width) => ({
  data: [memory.at_s, memory.allocated, ...(memory.reserved.length > 0 ? [memory.reserved] : [])],
  options: {
    width, height: 180, scales: { x: { time: false }, y: { range: (_, __, max) => [0, Math.max(max, 1) * 1.1] } },
    axes: [axis(tick, { size: 34 }), axis(bytes, { size: 76 })],
    series: [
      { label: "at", value: value(duration) },
      line("allocated", "accent"),
      ...(memory.reserved.length > 0 ? [line("reserved", "cause-handoff")] : []),
    ],
    hooks: legendHooks,
  },
});

/** Memory stays as it is until the next allocation. */
const line = (label: string, look: string): uPlot.Series => ({
  label, stroke: colour(look), width: 1.5, value: value(bytes),
  ...(uPlot.paths.stepped && { paths: uPlot.paths.stepped({ align: 1 }) }),
});

function told(memory: DeviceMemory): string {
  const from = memory.relative ? " Bytes count from the beginning of the window." : "";
  const unused = memory.unused_bytes === null || memory.reserved_bytes === null ? ""
    : ` torch had reserved ${bytes(memory.reserved_bytes)} then; ${bytes(memory.unused_bytes)} of it were not in use.`;
  return `Peak: ${bytes(memory.peak_bytes)} at ${duration(memory.peak_at_s)}.${unused}${from}`;
}

const signed = (size: number): string => `${size > 0 ? "+" : size < 0 ? "−" : ""}${bytes(Math.abs(size))}`;

function by(what: string, used: AllocatedBy[], steps: number): HTMLElement[] {
  if (used.length === 0) return [];
  return [table([`${what}, per step`, "allocations", "allocated", "allocated − freed"],
    used.map((a) => [a.name, count(Math.round(a.allocations / steps)), bytes(a.allocated_bytes / steps), signed(a.net_bytes / steps)]), [1, 2, 3])];
}
