// The lanes: main, workers, pin-memory thread, device; the queue below. Drawn on a canvas, so that a hundred
// thousand spans pan smoothly: spans narrower than a pixel are summed up per pixel.
import type { Lane, Views } from "../data";
import { causeColour, colour, el, section } from "../dom";
import { count, tick } from "../format";
import { onTheme } from "../theme";
import { story } from "./story";

const LANE = 24, GAP = 4, AXIS = 22, QUEUE = 40, LABEL = 84;

export function timeline(views: Views): HTMLElement {
  const canvas = el("canvas", {
    tabindex: 0, role: "img",
    "aria-label": "timeline of training and workers; arrow keys pan, plus and minus zoom, N and P go from batch to batch",
  });
  const told = el("div", { class: "story", "aria-live": "polite" }, "Point at a span, or press N, for the details of a batch.");
  const drawing = new Drawing(canvas, views, (batch) => { told.replaceChildren(story(views, batch)); });
  const button = (label: string, title: string, act: () => void): HTMLElement =>
    el("button", { type: "button", title, click: act }, label);
  const tools = el("div", { class: "tools" },
    button("Whole run", "show everything (0)", () => drawing.show(0, views.endS)),
    button("Typical steps", "a few steps of ordinary length", () => drawing.typical()),
    button("Longest wait", "around the longest wait after warm-up", () => drawing.longest()),
    button("−", "zoom out (−)", () => drawing.zoom(2)),
    button("+", "zoom in (+)", () => drawing.zoom(0.5)));
  const { first, last, of } = views.shown;
  const part = last - first < of
    ? el("p", { class: "note" }, `Showing batches ${count(first)} to ${count(last)} of ${count(of)}.`) : null;
  return section("timeline", "Timeline", tools, el("div", { class: "lanes" }, canvas), legend(views), told, part);
}

const LOOK: Record<string, string> = {
  step: "cause-compute", wait: "wait", start: "cause-startup", end: "cause-startup", between: "cause-host",
  fetch: "cause-cpu", collate: "cause-collate", send: "cause-handoff", pin: "cause-pin", stall: "wait",
};
const WORDS: Record<string, string> = {
  step: "step", wait: "waiting for data", start: "starting", fetch: "fetching samples", collate: "building the batch",
  send: "handing off", pin: "pinning", stall: "GPU starved", between: "between epochs",
};

function legend(views: Views): HTMLElement {
  const used = new Set(views.lanes.flatMap((lane) => [...new Set(lane.doing)].map((at) => views.doings[at] ?? "")));
  return el("ul", { class: "keys" }, ...Object.entries(WORDS).filter(([doing]) => used.has(doing)).map(([doing, words]) => {
    const mark = el("span", { class: "swatch", "aria-hidden": "true" });
    mark.style.background = `var(--${LOOK[doing]})`;
    return el("li", {}, mark, words);
  }));
}

class Drawing {
  private from = 0;
  private to: number;
  private selected = -1;
  private frame = 0;
  private colours: string[] = [];

  constructor(private canvas: HTMLCanvasElement, private views: Views, private tell: (batch: number) => void) {
    this.to = views.endS;
    canvas.style.height = `${views.lanes.length * (LANE + GAP) + AXIS + QUEUE + GAP}px`;
    this.typical();
    new ResizeObserver(() => this.later()).observe(canvas);
    onTheme(() => this.later());
    this.listen();
  }

  show(from: number, to: number): void {
    const length = Math.min(Math.max(to - from, 20e-6), this.views.endS * 1.02);
    this.from = Math.min(Math.max(from, -0.01 * length), this.views.endS - 0.5 * length);
    this.to = this.from + length;
    this.later();
  }

  zoom(factor: number, around = (this.from + this.to) / 2): void {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  typical(): void {
    const { ask, wait } = this.views.batches;
    if (ask.length < 8) { this.show(0, this.views.endS); return; }
    const middle = Math.floor(ask.length / 2);
    this.show(ask[middle] ?? 0, (ask[Math.min(middle + 6, ask.length - 1)] ?? 0) + (wait[middle] ?? 0));
  }

  longest(): void {
    const { ask, wait } = this.views.batches;
    let at = 0;
    for (let i = 0; i < ask.length; i++) {
      if ((ask[i] ?? 0) >= this.views.warmup_end_s && (wait[i] ?? 0) > (wait[at] ?? 0)) at = i;
    }
    this.select(at);
    this.show((ask[at] ?? 0) - (wait[at] ?? 0), (ask[at] ?? 0) + 2 * (wait[at] ?? 0));
  }

  private select(batch: number): void {
    this.selected = batch;
    if (batch >= 0) this.tell(batch);
    this.later();
  }

  private later(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  private get width(): number { return this.canvas.clientWidth - LABEL; }
  private x(at: number): number { return LABEL + ((at - this.from) / (this.to - this.from)) * this.width; }
  private at(x: number): number { return this.from + ((x - LABEL) / this.width) * (this.to - this.from); }

  private draw(): void {
    const { canvas, views } = this;
    const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (width === 0) return;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    if (!pen) return;
    pen.scale(scale, scale);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.colours = views.doings.map((doing) => colour(LOOK[doing] ?? "muted"));
    this.axis(pen, height);
    views.lanes.forEach((lane, row) => this.lane(pen, lane, AXIS + row * (LANE + GAP)));
    this.queue(pen, AXIS + views.lanes.length * (LANE + GAP));
  }

  private axis(pen: CanvasRenderingContext2D, height: number): void {
    const wanted = (this.to - this.from) / Math.max(this.width / 110, 1);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= wanted) ?? wanted;
    pen.strokeStyle = colour("line");
    pen.fillStyle = colour("muted");
    for (let at = Math.ceil(this.from / step) * step; at < this.to; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      if (x < LABEL) continue;
      pen.beginPath(); pen.moveTo(x, AXIS - 4); pen.lineTo(x, height); pen.stroke();
      pen.fillText(tick(at, step), x + 3, 9);
    }
    for (const border of this.views.epochs) {
      const x = this.x(border.begin_s);
      if (x < LABEL || x > LABEL + this.width) continue;
      pen.strokeStyle = colour("accent");
      pen.setLineDash([4, 3]); pen.beginPath(); pen.moveTo(x, AXIS - 6); pen.lineTo(x, height); pen.stroke(); pen.setLineDash([]);
    }
  }

  private lane(pen: CanvasRenderingContext2D, lane: Lane, top: number): void {
    pen.save();
    pen.beginPath(); pen.rect(LABEL, top, this.width, LANE); pen.clip();
    pen.fillStyle = colour("lane");
    pen.fillRect(LABEL, top, this.width, LANE);
    const kinds = this.views.doings.length;
    const sums = new Float64Array(kinds);
    let column = -1;
    const short: { column: number; doing: number; total: number }[] = [];
    const flush = (): void => {
      let best = 0, total = 0;
      for (let k = 0; k < kinds; k++) { total += sums[k] ?? 0; if ((sums[k] ?? 0) > (sums[best] ?? 0)) best = k; }
      if (total > 0) { short.push({ column, doing: best, total }); sums.fill(0); }
    };
    for (let i = firstVisible(lane, this.from); i < lane.begin.length; i++) {
      const begin = lane.begin[i] ?? 0, end = lane.end[i] ?? 0;
      if (begin > this.to) break;
      const x = this.x(begin), length = this.x(end) - x, doing = lane.doing[i] ?? 0;
      if (length < 1.2) {
        const pixel = Math.floor(x);
        if (pixel !== column) { flush(); column = pixel; }
        sums[doing] = (sums[doing] ?? 0) + Math.max(length, 0.05);
        continue;
      }
      flush();
      const send = this.views.doings[doing] === "send";
      pen.fillStyle = this.colours[doing] ?? "#888";
      pen.fillRect(x, top + (send ? LANE - 7 : 0), Math.max(length - (length > 4 ? 1 : 0), 0.5), send ? 7 : LANE);
      if (this.selected >= 0 && lane.batch[i] === this.selected) {
        pen.strokeStyle = colour("text"); pen.lineWidth = 2; pen.strokeRect(x + 1, top + 1, Math.max(length - 3, 1), LANE - 2); pen.lineWidth = 1;
      }
    }
    flush();
    // Last, so that no long neighbour covers them; one that stands alone is wide enough to be seen.
    short.forEach(({ column: at, doing, total }, i) => {
      const alone = short[i - 1]?.column !== at - 1 && short[i + 1]?.column !== at + 1;
      pen.globalAlpha = alone ? 1 : Math.max(0.25, Math.min(1, total));
      pen.fillStyle = this.colours[doing] ?? "#888";
      pen.fillRect(at, top, alone ? 2 : 1, LANE);
    });
    pen.globalAlpha = 1;
    pen.restore();
    pen.fillStyle = colour("text");
    pen.fillText(shortened(pen, lane.name, LABEL - 8), 0, top + LANE / 2);
  }

  private queue(pen: CanvasRenderingContext2D, top: number): void {
    const { ask, ready } = this.views.batches;
    const most = ready.reduce((a, b) => Math.max(a, b), 0);
    if (most <= 0) return;
    pen.fillStyle = colour("muted");
    pen.fillText("queue", 0, top + 12);
    pen.fillText(`max ${most}`, 0, top + 28);
    pen.save();
    pen.beginPath(); pen.rect(LABEL, top, this.width, QUEUE); pen.clip();
    pen.fillStyle = causeColour("handoff");
    pen.globalAlpha = 0.6;
    for (let i = lowerBound(ask, this.from); i < ask.length; i++) {
      const at = ask[i] ?? 0;
      if (at > this.to) break;
      const next = ask[i + 1] ?? at;
      const tall = (Math.max(ready[i] ?? 0, 0) / most) * QUEUE;
      pen.fillRect(this.x(at), top + QUEUE - tall, Math.max(this.x(next) - this.x(at), 1), tall);
    }
    pen.restore();
  }

  private found(event: MouseEvent): number {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - AXIS) / (LANE + GAP));
    const lane = this.views.lanes[row];
    const at = this.at(event.clientX - box.left);
    if (!lane || at < this.from) return -1;
    for (let i = firstVisible(lane, at); i < lane.begin.length && (lane.begin[i] ?? 0) <= at; i++) {
      if ((lane.end[i] ?? 0) >= at && (lane.batch[i] ?? -1) >= 0) return lane.batch[i] ?? -1;
    }
    return -1;
  }

  private listen(): void {
    const { canvas } = this;
    const fingers = new Map<number, number>();
    canvas.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, event.clientX); canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", (event) => fingers.delete(event.pointerId));
    canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (before === undefined) {
        const batch = this.found(event);
        if (batch >= 0 && batch !== this.selected) this.select(batch);
        return;
      }
      const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
      const box = canvas.getBoundingClientRect();
      if (others[0] !== undefined) {
        const apart = Math.abs(event.clientX - others[0]), was = Math.abs(before - others[0]);
        if (apart > 8 && was > 8) this.zoom(was / apart, this.at((event.clientX + others[0]) / 2 - box.left));
      } else {
        const moved = ((event.clientX - before) / this.width) * (this.to - this.from);
        this.show(this.from - moved, this.to - moved);
      }
      fingers.set(event.pointerId, event.clientX);
    });
    canvas.addEventListener("click", (event) => this.select(this.found(event)));
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, this.at(event.clientX - canvas.getBoundingClientRect().left)));
    canvas.addEventListener("wheel", (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!sideways && !event.ctrlKey && !event.metaKey && !event.shiftKey) return; // the page scrolls
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY / 300), this.at(event.clientX - canvas.getBoundingClientRect().left));
      else { const moved = ((sideways ? event.deltaX : event.deltaY) / this.width) * (this.to - this.from); this.show(this.from + moved, this.to + moved); }
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => { if (this.key(event.key)) event.preventDefault(); });
  }

  private key(key: string): boolean {
    const tenth = (this.to - this.from) / 10;
    switch (key) {
      case "ArrowLeft": this.show(this.from - tenth, this.to - tenth); return true;
      case "ArrowRight": this.show(this.from + tenth, this.to + tenth); return true;
      case "+": case "=": this.zoom(0.5); return true;
      case "-": this.zoom(2); return true;
      case "0": this.show(0, this.views.endS); return true;
      case "n": case "N": this.step(1); return true;
      case "p": case "P": this.step(-1); return true;
      default: return false;
    }
  }

  private step(by: number): void {
    const { ask, wait } = this.views.batches;
    const start = this.selected >= 0 ? this.selected + by : lowerBound(ask, this.from);
    const batch = Math.min(Math.max(start, 0), ask.length - 1);
    this.select(batch);
    const at = ask[batch] ?? 0, length = this.to - this.from;
    if (at < this.from || at + (wait[batch] ?? 0) > this.to) this.show(at - length / 4, at + length * 0.75);
  }
}

/** The first span that may reach into what is shown; a sender's span may overlap the next fetch. */
function firstVisible(lane: Lane, from: number): number {
  return Math.max(0, lowerBound(lane.begin, from) - 3);
}

function lowerBound(sorted: ArrayLike<number>, value: number): number {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < value) low = middle + 1; else high = middle;
  }
  return low;
}

function shortened(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return `${text.slice(0, end)}…`;
}
