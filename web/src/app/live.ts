import { el, section, swatch, table } from "../dom";
import { bytes, count, duration, percent, rate } from "../format";
import { badge } from "./columns";
import { history } from "./history";

// As present/exports/report_json.py writes it (schema unstarve.live/1); every number is for the last seconds.
interface Worker {
  place: number; pid: number; doing: string | null; since_s: number | null; waits_for: string | null;
  busy_share: number | null; parts: Record<string, number>; batches_per_s: number | null; rss_bytes: number | null;
}
interface Loader {
  name: string; where: string; epoch: number | null; position: number | null; steps: number; steps_per_s: number | null;
  samples_per_s: number | null; wait_share: number | null; queue_depth: number | null; queue_room: number | null; workers: Worker[];
}
interface Trainer {
  rank: number | null; host: string; device: string; doing: string | null; since_s: number | null; main: number;
  wait_share: number | null; stall_share: number | null; loaders: Loader[];
}
interface Live {
  path: string; command: string[]; state: string; exit_code: number | null; elapsed_s: number; window_s: number; steps: number;
  steps_per_s: number | null; samples_per_s: number | null; wait_share: number | null; stall_share: number | null;
  queue_depth: number | null; silent_s: number | null; trainers: Trainer[];
  memory: { main_bytes: number | null; workers_bytes: number | null; shm_bytes: number | null; shm_total_bytes: number | null };
}

const DOING: Record<string, string> = { fetch: "fetching", collate: "building the batch", send: "handing off", wait: "waiting", step: "in the step" };

/** One run while it is recorded. The connection is closed while the page is hidden. */
export function liveView(id: string): HTMLElement {
  const status = el("p", { class: "note", role: "status", id: "status" }, "connecting …");
  const panel = new LivePanel(id);
  const past = history();
  let source: EventSource | null = null;
  let ended = false;

  const stop = (): void => { source?.close(); source = null; };
  const end = (words: string): void => { ended = true; stop(); status.textContent = words; };
  const start = (): void => {
    if (source || ended) return;
    source = new EventSource(`/api/runs/${id}/live`);
    source.addEventListener("now", (event) => {
      const now = JSON.parse(event.data as string) as Live;
      panel.show(now);
      past.add({ at: now.elapsed_s, wait: now.wait_share, rate: now.samples_per_s ?? now.steps_per_s });
      status.textContent = quiet(now);
    });
    source.addEventListener("ended", () => end("The run has ended."));
    source.addEventListener("problem", (event) => end((JSON.parse(event.data as string) as { error: string }).error));
    source.addEventListener("error", () => { status.textContent = "The server does not respond; trying again."; });
  };
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else start(); });
  start();
  return el("div", { id: "live" }, panel.card, panel.details, past.element, status);
}

/** Redrawn every second; elements that can have the focus are kept. */
class LivePanel {
  private state = el("div");
  private title = el("h1");
  private numbers = el("div", { class: "figures" });
  private link: HTMLElement;
  readonly card: HTMLElement;
  readonly details = el("div", { id: "details" });

  constructor(id: string) {
    this.link = el("a", { href: `/run/${id}` }, "The report so far");
    this.card = el("section", { id: "verdict", class: "card", "aria-label": "now" }, this.state, this.title, this.numbers, el("p", {}, this.link));
  }

  show(now: Live): void {
    const trainer = now.trainers.find((one) => one.wait_share === now.wait_share) ?? now.trainers[0];
    const loader = trainer?.loaders[trainer.main];
    this.card.className = `card state-${now.state}`;
    this.state.replaceChildren(badge(now.state));
    this.title.textContent = now.path;
    this.numbers.replaceChildren(...figures(now, loader));
    this.link.textContent = now.state === "running" ? "The report so far" : "Open the report";
    document.title = `${now.state}: ${now.path}`;
    const place = document.getElementById("place");
    if (place) place.textContent = now.command.join(" ");
    const tables = [
      now.trainers.length > 1 && section("ranks", "Ranks", ranks(now.trainers)),
      loader && loader.workers.length > 0 && section("workers", `Workers of ${loader.name}`, workers(loader.workers)),
    ];
    this.replaceDetails(tables.filter((part) => part instanceof HTMLElement));
  }

  private replaceDetails(parts: HTMLElement[]): void {
    const stops = (): HTMLElement[] => [...this.details.querySelectorAll<HTMLElement>("[tabindex]")];
    const at = stops().indexOf(document.activeElement as HTMLElement);
    this.details.replaceChildren(...parts);
    stops()[at]?.focus({ preventScroll: true });
  }
}

function figures(now: Live, loader: Loader | undefined): HTMLElement[] {
  const found: HTMLElement[] = [];
  const add = (value: string, label: string): number => found.push(el("div", { class: "figure" }, el("b", {}, value), el("span", {}, label)));
  const onCpu = now.trainers.every((one) => one.device === "cpu");
  if (!onCpu && now.stall_share !== null) add(percent(now.stall_share), "of the time the GPU starves");
  if (now.wait_share !== null) add(percent(now.wait_share), onCpu ? "of the time waiting for data" : "of the time the host waits");
  if (now.samples_per_s !== null) add(rate(now.samples_per_s), "samples a second");
  if (now.steps_per_s !== null) add(rate(now.steps_per_s), "steps a second");
  add(count(now.steps), "steps so far");
  if (now.queue_depth !== null) add(`${rate(now.queue_depth)}${loader?.queue_room ? ` of ${loader.queue_room}` : ""}`, "batches ready");
  add(duration(now.elapsed_s), "since the start");
  const { main_bytes: main, workers_bytes: workers, shm_bytes: shm } = now.memory;
  if (main !== null) add(bytes(main), "memory of training");
  if (workers !== null) add(bytes(workers), "memory of workers");
  if (shm !== null) add(bytes(shm), "shared memory in use");
  return found;
}

function ranks(trainers: Trainer[]): HTMLElement {
  return table(["rank", "doing", "host waits", "GPU starves", "loader", "steps/s", "steps"], trainers.map((one) => {
    const loader = one.loaders[one.main];
    return [one.rank ?? "–", doing(one.doing, one.since_s), share(one.wait_share), share(one.stall_share), loader?.name ?? "–",
      perSecond(loader?.steps_per_s ?? null), loader?.steps ?? 0];
  }), [2, 3, 5, 6]);
}

function workers(all: Worker[]): HTMLElement {
  return table(["", "doing", "spends its time on", "busy", "batches/s", "memory"], all.map((one) => [
    one.place, doing(one.doing, one.since_s), one.waits_for === null ? "–" : [swatch(one.waits_for), one.waits_for],
    share(one.busy_share), perSecond(one.batches_per_s), one.rss_bytes === null ? "–" : bytes(one.rss_bytes),
  ]), [3, 4, 5]);
}

function doing(what: string | null, since: number | null): string {
  if (what === null) return "–";
  return `${DOING[what] ?? what}${since === null ? "" : `, for ${duration(since)}`}`;
}

const share = (value: number | null): string => (value === null ? "–" : percent(value));
const perSecond = (value: number | null): string => (value === null ? "–" : rate(value));

function quiet(now: Live): string {
  if (now.state !== "running" || now.trainers.length === 0) return now.state === "running" ? "No batch yet." : "";
  return now.silent_s !== null && now.silent_s > 3 ? `Nothing was written for ${duration(now.silent_s)}.` : `Numbers are for the last ${now.window_s} s.`;
}
