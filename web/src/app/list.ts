import { el } from "../dom";
import { list, RUNNING, type Listing, type RunLine } from "./api";
import { COLUMNS, ordered } from "./columns";
import { confirmRemoval } from "./remove";
import { uploads } from "./uploads";

const SOON_MS = 700; // while something is being worked out or recorded
const LATER_MS = 4000;

/** The list of runs, polled; only rows that changed are redrawn, so that the focus stays. */
export function runList(): HTMLElement {
  return new RunList().element;
}

class RunList {
  readonly element: HTMLElement;
  private listing: Listing | null = null;
  private rows = new Map<string, { drawn: string; row: HTMLElement }>();
  private chosen: string[] = [];
  private column = COLUMNS.find((column) => column.key === "when") ?? COLUMNS[0]!;
  private down = true;
  private timer = 0;

  private body = el("tbody");
  private heads = COLUMNS.map((column) => this.head(column));
  private filter = el("input", { type: "search", placeholder: "Filter", "aria-label": "filter runs", input: () => this.draw() });
  private compare = el("button", { type: "button", id: "compare", click: () => this.openComparison() });
  private status = el("p", { class: "note", role: "status", id: "status" });
  private empty = el("p", { class: "empty", hidden: true });

  constructor() {
    const upload = uploads((said) => { this.say(said); void this.refresh(); }, () => this.listing?.max_upload_bytes ?? Infinity);
    this.element = el("section", { id: "runs", "aria-label": "runs" },
      el("div", { class: "tools" }, this.filter, this.compare, upload),
      this.status,
      el("table", { class: "runs" },
        el("thead", {}, el("tr", {}, el("th", { class: "choose" }, el("span", { class: "hidden" }, "compare")), ...this.heads, el("th", {}, el("span", { class: "hidden" }, "delete")))),
        this.body),
      this.empty);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) void this.refresh(); });
    this.draw();
    void this.refresh();
  }

  private async refresh(): Promise<void> {
    clearTimeout(this.timer);
    let wait = LATER_MS;
    try {
      this.listing = await list();
      this.element.classList.remove("unreachable");
      if (this.listing.runs.some((line) => line.stale)) wait = SOON_MS;
      this.draw();
    } catch (error) {
      this.element.classList.add("unreachable");
      this.say(error instanceof TypeError ? "The server does not respond." : error instanceof Error ? error.message : String(error));
    }
    clearTimeout(this.timer);
    if (!document.hidden) this.timer = window.setTimeout(() => void this.refresh(), wait);
  }

  private draw(): void {
    const runs = this.listing?.runs ?? [];
    const present = new Set(runs.map((line) => line.id));
    this.chosen = this.chosen.filter((id) => present.has(id));
    const wanted = this.filter.value.toLowerCase();
    const lines = ordered(runs, this.column, this.down).filter((line) => matches(line, wanted));
    const rows = lines.map((line) => this.row(line));
    if (rows.length !== this.body.children.length || rows.some((row, at) => row !== this.body.children[at])) this.place(rows);
    for (const id of this.rows.keys()) if (!present.has(id)) this.rows.delete(id);
    for (const [id, { row }] of this.rows) {
      row.classList.toggle("chosen", this.chosen.includes(id));
      const box = row.querySelector<HTMLInputElement>("[data-focus=choose]");
      if (box) box.checked = this.chosen.includes(id);
    }
    this.compare.disabled = this.chosen.length !== 2;
    this.compare.textContent = this.chosen.length === 1 ? "Compare with …" : "Compare two";
    this.heads.forEach((head, at) => {
      const here = COLUMNS[at] === this.column;
      head.setAttribute("aria-sort", here ? (this.down ? "descending" : "ascending") : "none");
    });
    this.tellPlace(runs, lines.length);
  }

  private place(rows: HTMLElement[]): void {
    const focused = document.activeElement;
    this.body.replaceChildren(...rows);
    if (focused instanceof HTMLElement && this.body.contains(focused)) focused.focus();
  }

  private tellPlace(runs: RunLine[], shown: number): void {
    const place = document.getElementById("place");
    if (place && this.listing) place.textContent = `${this.listing.folder}: ${runs.length} ${runs.length === 1 ? "run" : "runs"}`;
    this.empty.hidden = this.listing === null || shown > 0;
    this.empty.textContent = runs.length > 0 ? "No run matches." : "No runs here yet. Record one in this folder with “unstarve run train.py”, or drop a run file on this page.";
  }

  private row(line: RunLine): HTMLElement {
    const drawn = JSON.stringify([line.name, line.summary]);
    const known = this.rows.get(line.id);
    if (known?.drawn === drawn) return known.row;
    const row = el("tr", { "data-id": line.id }, ...this.cells(line));
    const focus = known?.row.contains(document.activeElement) ? document.activeElement?.getAttribute("data-focus") : null;
    known?.row.replaceWith(row);
    this.rows.set(line.id, { drawn, row });
    if (focus) row.querySelector<HTMLElement>(`[data-focus="${focus}"]`)?.focus();
    return row;
  }

  private cells(line: RunLine): HTMLElement[] {
    const choose = el("input", {
      type: "checkbox", "data-focus": "choose", "aria-label": `compare ${line.name}`, change: () => this.choose(line.id),
    });
    const remove = el("button", {
      type: "button", "data-focus": "remove", "aria-label": `delete ${line.name}`, disabled: line.summary?.state === RUNNING,
      title: line.summary?.state === RUNNING ? "being recorded" : "delete this run", click: () => this.remove(line),
    }, "Delete");
    return [
      el("td", { class: "choose" }, choose),
      ...COLUMNS.map((column) => el("td", {
        class: `${column.key}${column.numeric ? " number" : ""}${column.order(line) === null ? " unknown" : ""}`, "data-title": column.title,
      }, ...column.cell(line))),
      el("td", { class: "act" }, remove),
    ];
  }

  private head(column: (typeof COLUMNS)[number]): HTMLElement {
    return el("th", { scope: "col", class: column.numeric ? "number" : undefined },
      el("button", { type: "button", class: "sort", click: () => this.sortBy(column) }, column.title));
  }

  private sortBy(column: (typeof COLUMNS)[number]): void {
    this.down = this.column === column ? !this.down : column.numeric === true;
    this.column = column;
    this.draw();
  }

  private choose(id: string): void {
    this.chosen = this.chosen.includes(id) ? this.chosen.filter((one) => one !== id) : [...this.chosen, id].slice(-2);
    this.draw();
  }

  /** The older one is A: before and after. */
  private openComparison(): void {
    const began = (id: string): number => this.listing?.runs.find((line) => line.id === id)?.summary?.started_at ?? 0;
    const [a, b] = [...this.chosen].sort((x, y) => began(x) - began(y));
    if (a && b) location.assign(`/compare?a=${a}&b=${b}`);
  }

  private remove(line: RunLine): void {
    void confirmRemoval(line).then((said) => { if (said) { this.say(said); void this.refresh(); } });
  }

  private say(text: string): void {
    this.status.textContent = text;
  }
}

function matches(line: RunLine, wanted: string): boolean {
  const words = [line.name, line.summary?.command ?? "", line.summary?.state ?? "", line.summary?.cause ?? ""];
  return words.join(" ").toLowerCase().includes(wanted);
}
