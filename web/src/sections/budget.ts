import type { Report } from "../data";
import { el, section, swatch } from "../dom";
import { duration, percent } from "../format";

const MEANING: Record<string, string> = {
  compute: "the step itself",
  host: "the loop's own Python",
  disk: "blocked on local storage",
  remote: "blocked on network, locks, sleeps",
  cpu: "computing inside __getitem__",
  collate: "building the batch",
  handoff: "getting the batch from worker to training",
  pin: "the pin-memory thread",
  copy: "host-to-device copy",
  sampler: "producing indices",
  startup: "starting workers, first batches",
  order: "finished batches held back for order",
  contention: "runnable, but no core free",
  unknown: "not measurable here",
};

export function budget(report: Report): HTMLElement | null {
  const shown = report.budget.filter((line) => line.share >= 0.001);
  if (shown.length === 0) return null;
  const bar = el("div", { class: "stack", role: "img", "aria-label": shown.map((l) => `${l.cause} ${percent(l.share)}`).join(", ") },
    ...shown.map((line) => {
      const part = el("span", { title: `${line.cause}: ${percent(line.share)}` });
      part.style.width = `${line.share * 100}%`;
      part.style.background = `var(--cause-${line.cause})`;
      return part;
    }));
  const rows = shown.map((line) => el("li", {},
    swatch(line.cause), el("b", {}, line.cause), el("span", { class: "meaning" }, MEANING[line.cause] ?? ""),
    el("span", { class: "number" }, percent(line.share)), el("span", { class: "number" }, duration(line.seconds))));
  const onGpu = report.gpu !== null && report.stall_share !== null;
  const outside = report.outside ?? [];
  return section("budget", onGpu ? "Where the GPU's time went" : "Where the time went", bar, el("ul", { class: "legend" }, ...rows),
    outside.length > 0 && el("p", { class: "outside" },
      `Outside the measured steps: ${outside.map((part) => `${part.what} ${duration(part.seconds)}`).join(", ")}.`));
}
