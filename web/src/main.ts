import "uplot/dist/uPlot.min.css";
import "./style.css";
import { readRun, unpack, type OneRun, type Page } from "./data";
import { el } from "./dom";
import { toggleTheme } from "./theme";
import { budget } from "./sections/budget";
import { distribution, memory, overTime, whatif } from "./sections/charts";
import { comparison } from "./sections/comparison";
import { environment, functions, loaders, slowSamples } from "./sections/details";
import { health } from "./sections/health";
import { copies, profile } from "./sections/profile";
import { ranks } from "./sections/ranks";
import { processor, reading } from "./sections/reading";
import { timeline } from "./sections/timeline";
import { advice, validation, verdict } from "./sections/verdict";

function reportSections({ report, views }: OneRun): (HTMLElement | null)[] {
  return [
    verdict(report), advice(report), validation(report), health(report), ranks(report), budget(report),
    views && timeline(views), views && overTime(views), views && distribution(views),
    copies(report), profile(report), reading(report), processor(report), functions(report), slowSamples(report), whatif(report), memory(report), loaders(report), environment(report),
  ];
}

function sections(page: Page): (HTMLElement | null)[] {
  if (page.page === "comparison") return comparison(page.comparison, readRun(page.a), readRun(page.b));
  return reportSections(readRun(page));
}

function header(command: string[], home: string | null): HTMLElement {
  return el("header", {},
    home === null ? el("span", { class: "logo" }, "unstarve") : el("a", { class: "logo", href: home, title: "all runs" }, "← unstarve"),
    el("code", { class: "command", title: command.join(" ") }, command.join(" ")),
    el("button", { type: "button", class: "theme", title: "light or dark", "aria-label": "switch between light and dark", click: toggleTheme }, "◐"));
}

export function show(page: Page, into: HTMLElement): void {
  const command = page.page === "report" ? page.report.run.command : page.b.report.run.command;
  const parts = sections(page).filter((part) => part !== null);
  into.replaceChildren(header(command, page.home ?? null), ...parts);
  into.dataset["ready"] = "true";
}

const into = document.getElementById("page");
const data = document.getElementById("data");
if (into && data) {
  unpack(data.textContent ?? "").then((page) => show(page, into)).catch((error: unknown) => {
    into.textContent = `This report cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
  });
}
