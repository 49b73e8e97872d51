import { el, swatch } from "../dom";
import { count, duration, rate, times } from "../format";
import { RUNNING, UNREADABLE, type RunLine, type Summary } from "./api";

export interface Column {
  key: string;
  title: string;
  numeric?: boolean;
  /** What rows are sorted by; what is not known comes last. */
  order: (line: RunLine) => number | string | null;
  cell: (line: RunLine) => (Node | string)[];
}

const STATES = [RUNNING, "starved", "tight", "fed", "inconclusive", UNREADABLE];
const NONE = "–";

const of = <T>(line: RunLine, get: (summary: Summary) => T | null): T | null => (line.summary ? get(line.summary) : null);
const shown = <T>(value: T | null, words: (value: T) => string): string[] => [value === null ? NONE : words(value)];

export const COLUMNS: Column[] = [
  {
    key: "state", title: "State",
    order: (line) => of(line, (s) => STATES.indexOf(s.state)),
    cell: (line) => [line.summary ? badge(line.summary.state) : el("span", { class: "badge reading" }, "reading")],
  },
  { key: "name", title: "Run", order: (line) => line.name.toLowerCase(), cell: nameCell },
  {
    key: "cause", title: "Cause", order: (line) => of(line, (s) => s.cause),
    cell: (line) => {
      const cause = of(line, (s) => s.cause);
      return cause === null ? [NONE] : [swatch(cause), cause];
    },
  },
  {
    key: "throughput", title: "Throughput", numeric: true, order: (line) => of(line, (s) => s.samples_per_s ?? s.steps_per_s),
    cell: (line) => shown(of(line, throughput), (words) => words),
  },
  {
    key: "headroom", title: "If loading were free", numeric: true, order: (line) => of(line, (s) => s.headroom),
    cell: (line) => shown(of(line, (s) => s.headroom), (ratio) => times(ratio)),
  },
  {
    key: "steps", title: "Steps", numeric: true, order: (line) => of(line, (s) => s.steps),
    cell: (line) => shown(of(line, (s) => s.steps), count),
  },
  {
    key: "wall", title: "Took", numeric: true, order: (line) => of(line, (s) => s.wall_s),
    cell: (line) => shown(of(line, (s) => s.wall_s), duration),
  },
  {
    key: "when", title: "When", numeric: true, order: (line) => of(line, (s) => s.started_at),
    cell: (line) => shown(of(line, (s) => s.started_at), moment),
  },
];

export function ordered(lines: RunLine[], column: Column, down: boolean): RunLine[] {
  const direction = down ? -1 : 1;
  return [...lines].sort((a, b) => {
    const x = column.order(a), y = column.order(b);
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
    return (x < y ? -1 : x > y ? 1 : 0) * direction;
  });
}

export const badge = (state: string): HTMLElement => el("span", { class: `state-${state}` }, el("span", { class: "badge" }, state));

export function address(line: RunLine): string {
  return `${line.summary?.state === RUNNING ? "/live" : "/run"}/${line.id}`;
}

function nameCell(line: RunLine): (Node | string)[] {
  const { summary } = line;
  const below = summary?.state === UNREADABLE ? summary.headline : summary?.command ?? "";
  return [
    el("a", { "data-focus": "open", href: address(line), title: summary?.headline ?? "" }, line.name),
    el("small", {}, below, summary?.cut_short && " · cut short"),
  ];
}

function throughput(summary: Summary): string | null {
  if (summary.samples_per_s !== null) return `${rate(summary.samples_per_s)} samples/s`;
  return summary.steps_per_s === null ? null : `${rate(summary.steps_per_s)} steps/s`;
}

function moment(seconds: number): string {
  const at = new Date(seconds * 1e3);
  const year = at.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" as const };
  return at.toLocaleString("en", { ...year, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}
