import type { Report } from "../data";
import { breakable, el, section, swatch, table } from "../dom";
import { bytes, count, duration, percent } from "../format";

/** Functions by their own time and, in a second table, transforms with all that they call. */
export function functions(report: Report): HTMLElement | null {
  const parts = [...ownTimes(report), ...transforms(report)];
  return parts.length > 0 ? section("functions", "Functions and transforms", ...parts) : null;
}

/** Cause over function: the width of a block is its share of the time. */
function ownTimes(report: Report): HTMLElement[] {
  if (report.functions.length === 0) return [];
  const most = Math.max(...report.functions.map((f) => f.seconds));
  const causes = [...new Set(report.functions.map((f) => f.where))];
  const total = report.functions.reduce((sum, f) => sum + f.seconds, 0);
  const flame = el("div", { class: "flame", role: "img", "aria-label": "functions by cause and share of time" },
    ...causes.map((cause) => {
      const own = report.functions.filter((f) => f.where === cause);
      const seconds = own.reduce((sum, f) => sum + f.seconds, 0);
      const column = el("div", { class: "flame-cause" }, el("span", { class: "flame-top", title: `${cause}: ${duration(seconds)}` }, cause),
        el("div", { class: "flame-row" }, ...own.map((f) => {
          const block = el("span", { title: `${f.name} (${place(f)}): ${duration(f.seconds)}` }, f.name);
          block.style.flex = `${f.seconds} 1 0`;
          block.style.background = `var(--cause-${cause})`;
          return block;
        })));
      column.style.flex = `${seconds / total} 1 0`;
      return column;
    }));
  const rows = report.functions.map((f) => {
    const bar = el("span", { class: "bar" });
    bar.style.width = `${(f.seconds / most) * 100}%`;
    bar.style.background = `var(--cause-${f.where})`;
    return [el("div", { class: "name" }, el("b", {}, f.name), el("small", {}, breakable(place(f)))), el("span", {}, swatch(f.where), f.where),
      percent(f.share), duration(f.seconds), el("div", { class: "track" }, bar)];
  });
  return [flame, table(["function", "cause", "share of its stage", "time", ""], rows, [2, 3]),
    el("p", { class: "note" }, "The stages are fetching (cpu, disk, remote), collate, and the step (host).")];
}

function transforms(report: Report): HTMLElement[] {
  const rows = report.transforms.map((t) => [t.name, count(t.calls), percent(t.share), duration(t.seconds)]);
  return rows.length > 0 ? [table(["transform, with all it calls", "calls", "share of fetching", "time"], rows, [1, 2, 3])] : [];
}

const place = (f: { file: string; line: number }): string => (f.line > 0 ? `${f.file}:${f.line}` : f.file);

export function slowSamples(report: Report): HTMLElement | null {
  if (report.slow_samples.length === 0) return null;
  const named = report.slow_samples.some((sample) => sample.file);
  const rows = report.slow_samples.map((sample) =>
    [`${sample.index}`, ...(named ? [sample.file ?? "–"] : []), duration(sample.ms / 1e3)]);
  const heads = ["index in the dataset", ...(named ? ["file"] : []), "time"];
  return section("slow-samples", "Slowest samples", el("div", { class: "narrow" }, table(heads, rows, [heads.length - 1])));
}

/** The line that created a loader, with its dataset where that line has created several. */
function whereOf(loader: Report["loaders"][number], report: Report): string {
  const { dataset, dataset_len: length } = loader.config;
  const shared = report.loaders.filter((one) => one.where === loader.where).length > 1;
  const place = loader.role === "validation" ? `${loader.where}, validation` : loader.where;
  return shared && dataset ? `${place}, ${String(dataset)}${length === undefined ? "" : `[${String(length)}]`}` : place;
}

export function loaders(report: Report): HTMLElement | null {
  if (report.loaders.length === 0) return null;
  const rows = report.loaders.map((loader) => [
    el("div", { class: "name" }, el("b", {}, loader.name), el("small", {}, breakable(whereOf(loader, report)))),
    String(loader.config["num_workers"] ?? "–"), String(loader.config["batch_size"] ?? "–"), `${loader.epochs}`, `${loader.steps}`,
    loader.wait_ms ? duration(loader.wait_ms.p50 / 1e3) : "–", loader.wait_ms ? duration(loader.wait_ms.p95 / 1e3) : "–", duration(loader.startup_s),
  ]);
  return section("loaders", "Loaders", table(["loader", "workers", "batch", "epochs", "steps", "wait p50", "p95", "start"], rows, [1, 2, 3, 4, 5, 6, 7]));
}

function inWords(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(inWords).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => `${name} ${inWords(one)}`).join(", ");
  return String(value);
}

/** Readings that analysis compares with each other; they say nothing by themselves. */
const FOR_ANALYSIS = new Set(["affinity", "first_cores", "grouped", "usage", "usage_before"]);

export function environment(report: Report): HTMLElement {
  const { run, overhead } = report;
  const facts: [string, string][] = [
    ["command", run.command.join(" ")], ["recorded", new Date(run.started_at * 1000).toLocaleString()],
    ["wall time", duration(run.wall_s)], ["steps", `${count(run.steps)} (${run.warmup_steps} warm-up)`],
    ["device", run.ranks > 1 ? `${run.ranks} × ${run.device}` : run.device],
    ["versions", Object.entries(run.versions).map(([name, version]) => `${name} ${version}`).join(", ")],
    ["ended", run.live ? "still recording" : run.cut_short ? "cut short" : run.kind === "import" ? "imported" : `exit code ${run.exit_code}`],
  ];
  for (const [name, value] of Object.entries(report.system ?? {})) {
    const words = inWords(value);
    if (words !== "" && !FOR_ANALYSIS.has(name)) facts.push([name.replaceAll("_", " "), words]);
  }
  const used = report.gpu?.["memory_used_bytes"];
  if (used) facts.push(["GPU memory", bytes(used)]);
  const reserved = report.gpu?.["reserved_peak_bytes"];
  if (reserved) facts.push(["of it torch's", `at most ${bytes(report.gpu?.["allocated_peak_bytes"] ?? 0)} of tensors, ${bytes(reserved)} reserved`]);
  const power = report.gpu?.["power_w"], received = report.gpu?.["received_bytes_per_s"], jpeg = report.gpu?.["jpeg_engine_share"];
  if (power) facts.push(["GPU power", `${Math.round(power)} W`]);
  if (received) facts.push(["over PCI Express", `${bytes(received)}/s to the GPU, ${bytes(report.gpu?.["sent_bytes_per_s"] ?? 0)}/s from it`]);
  if (jpeg) facts.push(["GPU's JPEG engines", `busy ${percent(jpeg)} of the time`]);
  if (overhead.us_per_step !== null && overhead.share !== null) {
    facts.push(["unstarve used", `${percent(overhead.share)} of a core, ${duration(overhead.us_per_step / 1e6)} of CPU time a step`]);
  }
  if (overhead.worker_us_per_batch !== null && overhead.worker_share !== null) {
    facts.push(["in workers", `${percent(overhead.worker_share)} of their time, ${duration(overhead.worker_us_per_batch / 1e6)} of CPU time a batch`]);
  }
  return section("environment", "Environment",
    report.lost.length > 0 && el("ul", { class: "lost" }, ...report.lost.map((line) => el("li", {}, breakable(line)))),
    el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, breakable(value))])));
}
