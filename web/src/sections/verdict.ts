import type { Advice, Report } from "../data";
import { breakable, el } from "../dom";
import { LARGEST_RATIO, interval, percent, rate, times } from "../format";

export function verdict(report: Report): HTMLElement {
  const { state, headline, evidence } = report.verdict;
  return el("section", { id: "verdict", class: `card state-${state}`, "aria-label": "verdict" },
    el("p", { class: "badge" }, state),
    el("h1", {}, headline),
    el("div", { class: "figures" }, figures(report)),
    evidence.length > 0 && el("ul", { class: "evidence" }, ...evidence.map((line) => el("li", {}, breakable(line)))));
}

function figures(report: Report): HTMLElement[] {
  const found: HTMLElement[] = [];
  const add = (value: string, label: string): number => found.push(el("div", { class: "figure" }, el("b", {}, value), el("span", {}, label)));
  const onCpu = report.run.device === "cpu";
  if (!onCpu && report.stall_share !== null) add(percent(report.stall_share), "of the time the GPU starved");
  const waited = onCpu ? report.stall_share : report.wait_share;
  if (waited !== null) add(percent(waited), onCpu ? "of the time waiting for data" : "of the time the host waited");
  if (report.headroom) {
    const how = report.headroom.method === "replay" ? "measured" : "estimated";
    add(times(report.headroom.speedup), `if loading were free${within(report.headroom.speedup, report.headroom)}, ${how}`);
  }
  const { samples_per_s: samples, steps_per_s: steps } = report.throughput;
  if (samples !== null) add(rate(samples), "samples a second");
  if (steps !== null) add(rate(steps), "steps a second");
  return found;
}

export function advice(report: Report): HTMLElement | null {
  const rejected = report.rejected ?? [];
  if (report.advice.length === 0 && rejected.length === 0) return null;
  return el("section", { id: "advice", "aria-labelledby": "advice-title" },
    el("h2", { id: "advice-title" }, "What to change"),
    el("ol", { class: "advice" }, ...report.advice.map(one)),
    rejected.length > 0 && el("div", { class: "rejected" }, el("h3", {}, "Considered, but not advised"),
      el("ul", {}, ...rejected.map((item) => el("li", {}, `${item.what}: ${item.why}`)))));
}

/** Validation loops that take a good part of the run, each with its own verdict. */
export function validation(report: Report): HTMLElement | null {
  const parts = report.loaders.flatMap(({ verdict: own, advice: items }) => (own ? [
    el("h3", {}, own.headline),
    el("ul", { class: "evidence" }, ...own.evidence.map((line) => el("li", {}, line))),
    el("ol", { class: "advice" }, ...(items ?? []).map(one)),
  ] : []));
  if (parts.length === 0) return null;
  return el("section", { id: "validation", "aria-labelledby": "validation-title" },
    el("h2", { id: "validation-title" }, "Validation"), ...parts);
}

function one(item: Advice): HTMLElement {
  return el("li", {},
    el("div", { class: "advice-head" },
      el("h3", {}, item.title),
      item.speedup && el("span", { class: "gain", title: "predicted speed-up and its interval" },
        times(item.speedup.predicted), el("small", {}, within(item.speedup.predicted, item.speedup)))),
    item.speedup && item.speedup.low < 0.98 && el("p", { class: "warn" }, "It may also be slower: measure it."),
    el("p", {}, breakable(`${item.why.charAt(0).toUpperCase()}${item.why.slice(1)}. ${item.note ?? ""}`.trim())),
    item.code !== "" && code(item.code),
    item.command ? el("p", {}, `${item.code === "" ? "W" : "Or, w"}ithout changing your code:`) : null,
    item.command ? code(item.command) : null);
}

export function code(text: string): HTMLElement {
  const said = el("span", { class: "said", role: "status" });
  const copy = el("button", { type: "button", class: "copy", click: () => { void copyText(text, said); } }, "Copy");
  return el("div", { class: "code" }, el("pre", { tabindex: 0 }, el("code", {}, text)), copy, said);
}

async function copyText(text: string, said: HTMLElement): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = "copied";
  } catch {
    said.textContent = "select the text and copy it"; // no clipboard without a secure context
  }
  setTimeout(() => { said.textContent = ""; }, 2000);
}

/** Beyond a hundredfold the interval means as little as the digits. */
function within(ratio: number, bounds: { low: number; high: number }): string {
  return ratio > LARGEST_RATIO || bounds.low === bounds.high ? "" : ` ${interval(bounds.low, bounds.high)}`;
}
