// Elements from words: whatever comes from the data becomes a text node, never markup.

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | undefined | ((event: Event) => void)>;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: (Child | Child[])[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** A text whose paths may be broken after a separator, so that no name is broken in the middle. */
export function breakable(text: string): (Node | string)[] {
  return text.split(/(?<=[/\\])(?=[^\s/\\])/).flatMap((piece, at) => (at === 0 ? [piece] : [el("wbr"), piece]));
}

export function section(id: string, title: string, ...children: (Child | Child[])[]): HTMLElement {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
}

export function table(headers: string[], rows: (Child | Child[])[][], numeric: number[] = []): HTMLElement {
  const cell = (tag: "th" | "td", value: Child | Child[], at: number): HTMLElement =>
    el(tag, { class: numeric.includes(at) ? "number" : undefined, scope: tag === "th" ? "col" : undefined }, value);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table" },
    el("table", {},
      el("thead", {}, el("tr", {}, ...headers.map((header, at) => cell("th", header, at)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((value, at) => cell("td", value, at)))))));
}

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888";
}

export const causeColour = (cause: string): string => colour(`cause-${cause}`);

export function swatch(cause: string): HTMLElement {
  const mark = el("span", { class: "swatch", "aria-hidden": "true" });
  mark.style.background = `var(--cause-${cause})`;
  return mark;
}
