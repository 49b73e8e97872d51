import type { Profile, Report } from "../data";
import { el, section, table } from "../dom";
import { bytes, count, duration, percent } from "../format";
import { deviceMemory } from "./device_memory";

/** What a profiler said about devices, copies, kernels and operators. */
export function profile(report: Report): HTMLElement | null {
  const found = report.profile;
  if (!found) return null;
  return section("profile", `What ${found.source} recorded`, ...parts(found));
}

/** Copies to the GPU, per step, by kind. */
export function copies(report: Report): HTMLElement | null {
  const found = report.copies;
  if (!found || found.kinds.length === 0) return null;
  const step = (amount: number): number => amount / found.steps;
  return section("copies", `Copies to the GPU, per step (timed in ${count(found.steps)} steps)`, table(
    ["memory", "host", "stream", "copies", "size", "time", "the host's time"],
    found.kinds.map((k) => [`${k.memory} (GPU ${k.device})`, k.blocking ? "waits" : "goes on", k.overlapped ? "beside" : "training's",
      step(k.copies).toFixed(1), bytes(step(k.bytes)), duration(step(k.seconds)), duration(step(k.host_s))]), [3, 4, 5, 6]));
}

/** Names of C++ templates are longer than any table is wide. */
const named = (name: string): HTMLElement => el("code", { title: name }, name.length > 70 ? `${name.slice(0, 69)}…` : name);

function parts(p: Profile): HTMLElement[] {
  const share = (seconds: number): string => percent(seconds / (p.window_s || 1));
  const titled = (title: string, head: string[], rows: (string | HTMLElement)[][], numbers: number[]): HTMLElement[] =>
    rows.length === 0 ? [] : [el("h3", {}, title), table(head, rows, numbers)];
  const phases = p.phases.filter((phase) => phase.seconds > 0 || phase.device_s > 0);
  const total = phases.reduce((sum, phase) => sum + phase.seconds, 0) || 1;
  const steps = Math.max(p.steps, 1);
  return [
    ...titled("A step", ["phase", "per step", "share", ...(p.devices.length > 0 ? ["on the GPU"] : [])],
      phases.map((f) => [f.name, duration(f.seconds / steps), percent(f.seconds / total),
        ...(p.devices.length > 0 ? [duration(f.device_s / steps)] : [])]), [1, 2, 3]),
    ...titled("Devices", ["device", "busy", "kernels", "copies exposed", "idle", "starved", "launch gaps"],
      p.devices.map((d) => [`GPU ${d.device}`, share(d.busy_s), share(d.kernel_s), share(d.exposed_copy_s), share(d.idle_s), share(d.starved_s),
        share(d.launch_gap_s)]), [1, 2, 3, 4, 5, 6]),
    ...(p.findings ?? []).map((sentence) => el("p", {}, sentence)),
    ...titled("Copies", ["kind", "memory", "count", "size", "time", "exposed"],
      p.copies.map((c) => [`${c.kind} (GPU ${c.device})`, c.memory || "–", count(c.count), bytes(c.bytes), duration(c.seconds), duration(c.exposed_s)]), [2, 3, 4, 5]),
    ...titled("Longest idle gaps", ["what the host was doing", "device", "at", "idle for"],
      p.gaps.map((g) => [g.host || "Python of the training loop", `GPU ${g.device}`, duration(g.begin_s), duration(g.seconds)]), [2, 3]),
    ...deviceMemory(p),
    ...titled("Kernels", ["kernel", "calls", "time"],
      p.kernels.slice(0, 15).map((k) => [named(k.name), count(k.calls), duration(k.seconds)]), [1, 2]),
    ...titled("Operators", ["operator", "calls", "own CPU time", "on the GPU"],
      p.operators.slice(0, 15).map((o) => [named(o.name), count(o.calls), duration(o.self_s ?? 0), duration(o.device_s ?? 0)]), [1, 2, 3]),
    ...titled("File calls", ["call", "process", "calls", "time"],
      p.calls.slice(0, 15).map((c) => [c.name, String(c.process ?? "–"), count(c.calls), duration(c.seconds)]), [2, 3]),
    ...titled("Files", ["file", "process", "opens", "reads", "size", "time"],
      p.files.slice(0, 15).map((f) => [f.path, `${f.process}`, count(f.opens), count(f.reads), bytes(f.bytes), duration(f.seconds)]), [2, 3, 4, 5]),
  ];
}
