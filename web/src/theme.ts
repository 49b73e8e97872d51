// Light or dark: the system's wish unless the reader says otherwise. Drawings ask to be told.

const listeners: (() => void)[] = [];
const KEPT = "unstarve-theme"; // from page to page of one tab

try {
  const kept = sessionStorage.getItem(KEPT);
  if (kept) document.documentElement.dataset["theme"] = kept;
} catch { /* a page without an origin keeps nothing */ }

export function onTheme(redraw: () => void): void {
  listeners.push(redraw);
}

export function toggleTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset["theme"] ? root.dataset["theme"] === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset["theme"] = dark ? "light" : "dark";
  try { sessionStorage.setItem(KEPT, root.dataset["theme"]); } catch { /* the same */ }
  for (const redraw of listeners) redraw();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const redraw of listeners) redraw();
});
