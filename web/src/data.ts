// What Python put into the page: the report (schema unstarve.report/1) and the columns of present/page/page_data.py.

export interface Spread { mean: number; p50: number; p95: number; max: number }
export interface Interval { predicted: number; low: number; high: number }

export interface Advice {
  id: string; title: string; why: string; code: string; speedup: Interval | null; note?: string; command?: string;
}

export interface Finding {
  id: string; severity: string; message: string; why: string; fix: string; file: string | null; line: number | null;
}

export interface WhatifPoint {
  workers: number; samples_per_s: number | null; steps_per_s: number; low: number; high: number; recorded: boolean;
}

export interface NamedUse { name: string; calls: number; seconds: number; self_s: number | null; device_s: number | null; process: number | null }
export interface AllocatedBy { name: string; allocations: number; allocated_bytes: number; net_bytes: number }
export interface DeviceMemory {
  device: string; relative: boolean; peak_bytes: number; peak_at_s: number; reserved_bytes: number | null; unused_bytes: number | null;
  at_s: number[]; allocated: number[]; reserved: number[]; by_phase: AllocatedBy[]; by_operator: AllocatedBy[];
}
export interface Profile {
  source: string; window_s: number; steps: number; findings?: string[]; memory?: DeviceMemory[];
  phases: { name: string; seconds: number; device_s: number }[];
  devices: { device: number; busy_s: number; kernel_s: number; idle_s: number; starved_s: number; exposed_copy_s: number; launch_gap_s: number }[];
  gaps: { device: number; begin_s: number; seconds: number; host: string }[];
  copies: { device: number; kind: string; memory: string; count: number; bytes: number; seconds: number; exposed_s: number }[];
  kernels: NamedUse[]; operators: NamedUse[]; calls: NamedUse[];
  files: { path: string; process: number; opens: number; reads: number; bytes: number; seconds: number }[];
}
export interface Verdict { state: string; cause: string; headline: string; evidence: string[]; second: string | null }

export interface Reading {
  why_not: string | null; opens: number; reads: number; read_bytes: number; used_bytes: number | null;
  read_per_used: number | null;
  patterns: { id: string; finding: string; remedy: string }[];
  files: {
    path: string; kind: string; opens: number; open_s: number; reads: number; bytes: number; seconds: number;
    longest_s: number; mapped_bytes: number;
  }[];
  kinds: { kind: string; files: number; opens: number; reads: number; bytes: number; seconds: number }[];
  processes: {
    process: number; role: string; files: number; opens: number; open_s: number; reads: number; bytes: number; seconds: number;
  }[];
}

export interface ProcessorUse {
  instructions_per_cycle: number | null; cache_misses_per_1000: number | null; tlb_misses_per_1000: number | null;
}

export interface Ranks {
  pattern: string; step_ms: number; even_ms: number; free_ms: number;
  by_rank: {
    rank: number; host: string; wait_share: number; late_share: number; wait_ms: number; work_ms: number;
    blocked_ms: number | null; lost_ms: number;
  }[];
  heat: { stretch_steps: number; longest_ms: number; rows: number[][] } | null;
}

export interface Report {
  run: {
    command: string[]; kind: string; path: string; started_at: number; wall_s: number; steps: number;
    warmup_steps: number; ranks: number; device: string; versions: Record<string, string>;
    exit_code: number | null; cut_short: boolean; live: boolean;
  };
  verdict: Verdict;
  wait_share: number | null;
  stall_share: number | null;
  throughput: { steps_per_s: number | null; samples_per_s: number | null };
  step_ms: Spread | null;
  wait_ms: Spread | null;
  budget: { cause: string; seconds: number; share: number }[];
  outside?: { what: string; seconds: number }[];
  headroom: { speedup: number; low: number; high: number; method: string } | null;
  functions: { name: string; file: string; line: number; where: string; seconds: number; share: number }[];
  slow_samples: { index: number; ms: number; file?: string | null }[];
  transforms: { name: string; calls: number; seconds: number; share: number }[];
  advice: Advice[];
  rejected?: { id: string; what: string; why: string }[];
  health: Finding[];
  gpu: Record<string, number | null> | null;
  copies?: {
    steps: number; share: number;
    kinds: { device: number; memory: string; blocking: boolean; overlapped: boolean; copies: number; bytes: number; seconds: number; host_s: number }[];
  } | null;
  overhead: { us_per_step: number | null; share: number | null; worker_us_per_batch: number | null; worker_share: number | null };
  loaders: {
    name: string; where: string; kind: string; config: Record<string, unknown>; steps: number; epochs: number;
    wait_s: number; startup_s: number; wait_ms: Spread | null; role?: string; verdict?: Verdict | null; advice?: Advice[];
  }[];
  system?: Record<string, unknown>;
  whatif?: { loader: string; curve: WhatifPoint[] } | null;
  memory?: {
    training_peak_bytes: number | null; workers_peak_bytes: number | null; shm_peak_bytes: number | null;
    shm_total_bytes: number | null; lines: { name: string; at_s: number[]; bytes: number[] }[];
    workers_uss_peak_bytes?: number | null;
  } | null;
  profile?: Profile | null;
  io?: Reading | null;
  perf?: { step: ProcessorUse | null; loading: ProcessorUse | null } | null;
  ranks?: Ranks | null;
  walk?: string[];
  lost: string[];
}

export interface Histogram { edges_ms: number[]; counts: number[] }

interface LaneColumns { name: string; kind: string; begin: number[]; length: number[]; doing: number[]; batch: number[] }
interface BatchColumns {
  loader: number[]; epoch: number[]; position: number[]; ask: number[]; wait: number[]; step: number[];
  worker: number[]; ready: number[]; size: number[]; causes: number[][];
}
export interface ViewColumns {
  rank: number | null; shown: { first: number; last: number; of: number }; warmup_end_s: number;
  doings: string[]; causes: string[]; loaders: string[]; lanes: LaneColumns[]; batches: BatchColumns;
  epochs: { loader: string; epoch: number; begin_s: number }[];
  wait_ms: Histogram | null; step_ms: Histogram | null;
}

export interface Lane { name: string; kind: string; begin: Float64Array; end: Float64Array; doing: Uint8Array; batch: Int32Array }
export interface Views extends Omit<ViewColumns, "lanes" | "batches"> {
  lanes: Lane[];
  batches: BatchColumns; // ask and position summed up; times in seconds
  endS: number;
}

export interface OneRun { report: Report; views: Views | null }
export interface Comparison {
  headline: string; change: { ratio: number; low: number; high: number; shown: boolean } | null;
  rows: { metric: string; unit: string; a: number | null; b: number | null; label: string }[];
  notes: string[];
  gates: { expression: string; failed: boolean; reason: string }[];
  operators?: { name: string; a_s: number; b_s: number }[];
}
export type Page =
  | { page: "report"; home?: string | null; report: Report; views: ViewColumns | null }
  | { page: "comparison"; home?: string | null; comparison: Comparison; a: Packed; b: Packed };
interface Packed { report: Report; views: ViewColumns | null }

export async function unpack(text: string): Promise<Page> {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text()) as Page;
}

export function readRun(packed: Packed): OneRun {
  return { report: packed.report, views: packed.views && readViews(packed.views) };
}

function readViews(columns: ViewColumns): Views {
  const lanes = columns.lanes.map(readLane);
  const batches = {
    ...columns.batches,
    position: summed(columns.batches.position),
    ask: summed(columns.batches.ask).map(seconds),
    wait: columns.batches.wait.map(seconds),
    step: columns.batches.step.map((us) => (us < 0 ? us : seconds(us))),
  };
  const endS = Math.max(0.001, ...lanes.map((lane) => lane.end.reduce((a, b) => Math.max(a, b), 0)));
  return { ...columns, lanes, batches, endS };
}

function readLane(columns: LaneColumns): Lane {
  const begin = Float64Array.from(summed(columns.begin), seconds);
  const end = begin.map((at, i) => at + seconds(columns.length[i] ?? 0));
  return {
    name: columns.name, kind: columns.kind, begin, end,
    doing: Uint8Array.from(columns.doing), batch: Int32Array.from(summed(columns.batch)),
  };
}

function summed(differences: number[]): number[] {
  let sum = 0;
  return differences.map((difference) => (sum += difference));
}

const seconds = (us: number): number => us / 1e6;
