import type { Views } from "../data";
import { el, swatch } from "../dom";
import { duration, percent } from "../format";

/** One batch in words: how long training waited for it, why, and which worker made it. */
export function story(views: Views, at: number): HTMLElement {
  const b = views.batches;
  const worker = b.worker[at] ?? -1, ready = b.ready[at] ?? -1, size = b.size[at] ?? -1, step = b.step[at] ?? -1;
  const pairs = b.causes[at] ?? [];
  const causes: HTMLElement[] = [];
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const cause = views.causes[pairs[i] ?? 0] ?? "unknown";
    causes.push(el("span", { class: "part" }, swatch(cause), `${cause} ${percent((pairs[i + 1] ?? 0) / 100)}`));
  }
  const facts = [
    worker >= 0 ? `made by worker ${worker}` : null,
    ready >= 0 ? `${ready} ready at the time` : null,
    size >= 0 ? `${size} samples` : null,
    step >= 0 ? `next batch ${duration(step)} later` : null,
  ].filter((fact) => fact !== null);
  return el("div", {},
    el("b", {}, `${views.loaders[b.loader[at] ?? 0] ?? "loader"}, epoch ${b.epoch[at]}, batch ${b.position[at]}`),
    ` · waited ${duration(b.wait[at] ?? 0)} · ${facts.join(" · ")} `, ...causes);
}
