import uPlot from "uplot";
import { colour } from "./dom";

export function axis(format: (value: number) => string, more: uPlot.Axis = {}): uPlot.Axis {
  return {
    stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 },
    values: (_, values) => values.map((value) => (value === null ? "" : format(value))), size: 60, font: "12px system-ui, sans-serif", ...more,
  };
}

/** What a legend shows of a series under the cursor. */
export const value = (format: (value: number) => string) => (_: uPlot, at: number | null | undefined): string =>
  at === null || at === undefined ? "" : format(at);

/** Without a cursor there are no values: the legend names the lines and leaves the rest out (style.css). */
export const legendHooks: uPlot.Hooks.Arrays = {
  ready: [(plot) => plot.root.classList.add("idle")],
  setCursor: [(plot) => { plot.root.classList.toggle("idle", plot.cursor.idx === null || plot.cursor.idx === undefined); }],
};
