import type { ProcessorUse, Reading, Report } from "../data";
import { breakable, el, section, table } from "../dom";
import { bytes, count, duration, rate, times } from "../format";

const MOST_ROWS = 15;

/** How loading read its files: patterns, files, kinds and processes. */
export function reading(report: Report): HTMLElement | null {
  const found = report.io;
  if (!found || found.why_not !== null) return null;
  return section("reading", "How loading reads its files", el("p", {}, total(found)), ...parts(found));
}

function total(io: Reading): string {
  const many = (number: number, noun: string): string => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
  const read = `Loading read ${bytes(io.read_bytes)} in ${many(io.reads, "read")} and ${many(io.opens, "open")}.`;
  if (io.used_bytes === null) return read;
  const used = ` Its batches held ${bytes(io.used_bytes)}`;
  return io.read_per_used === null
    ? `${read}${used}; reads of memory-mapped files are not counted.`
    : `${read}${used}: read ÷ used is ${times(io.read_per_used)}.`;
}

function parts(io: Reading): HTMLElement[] {
  const titled = (title: string, head: string[], rows: (string | HTMLElement)[][], numbers: number[]): HTMLElement[] =>
    rows.length === 0 ? [] : [el("h3", {}, title), table(head, rows, numbers)];
  return [
    ...(io.patterns.length === 0 ? [] : [el("ul", {},
      ...io.patterns.map((one) => el("li", {}, ...breakable(one.finding), " ", el("strong", {}, one.remedy))))]),
    ...titled("Files", ["file", "kind", "opens", "reads", "size", "time", "longest"],
      io.files.slice(0, MOST_ROWS).map((f) => [
        el("span", {}, ...breakable(f.path)), f.kind || "–", count(f.opens), count(f.reads),
        f.mapped_bytes > f.bytes ? `${bytes(f.mapped_bytes)} mapped` : bytes(f.bytes),
        duration(f.seconds + f.open_s), duration(f.longest_s),
      ]), [2, 3, 4, 5, 6]),
    ...titled("Kinds of files", ["kind", "files", "opens", "reads", "size", "time"],
      io.kinds.slice(0, MOST_ROWS).map((k) => [
        k.kind || "unknown", count(k.files), count(k.opens), count(k.reads), bytes(k.bytes), duration(k.seconds),
      ]), [1, 2, 3, 4, 5]),
    ...titled("Read by", ["process", "files", "opens", "reads", "size", "time"],
      io.processes.slice(0, MOST_ROWS).map((p) => [
        `${p.role || "program"} ${p.process}`, count(p.files), count(p.opens), count(p.reads), bytes(p.bytes),
        duration(p.seconds + p.open_s),
      ]), [1, 2, 3, 4, 5]),
  ];
}

/** The processor's counters of the step and of loading. */
export function processor(report: Report): HTMLElement | null {
  const shown = (value: number | null): string => (value === null ? "–" : rate(value));
  const row = (name: string, use: ProcessorUse | null | undefined): string[][] =>
    use ? [[name, shown(use.instructions_per_cycle), shown(use.cache_misses_per_1000), shown(use.tlb_misses_per_1000)]] : [];
  const rows = [...row("step", report.perf?.step), ...row("loading", report.perf?.loading)];
  if (rows.length === 0) return null;
  return section("processor", "The processor",
    table(["part", "instructions per cycle", "cache misses per 1,000 instructions", "TLB misses per 1,000 instructions"], rows, [1, 2, 3]));
}
