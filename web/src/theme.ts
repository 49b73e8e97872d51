// Light or dark: the system's wish unless the reader says otherwise. Drawings ask to be told.

const listeners: (() => void)[] = [];

export function onTheme(redraw: () => void): void {
  listeners.push(redraw);
}

export function toggleTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset["theme"] ? root.dataset["theme"] === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset["theme"] = dark ? "light" : "dark";
  for (const redraw of listeners) redraw();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const redraw of listeners) redraw();
});
