import uPlot from "uplot";
import { colour, el, section } from "../dom";
import { duration, percent, rate, round, tick } from "../format";
import { axis, legendHooks, value } from "../plot";
import { onTheme } from "../theme";

export interface Point { at: number; wait: number | null; rate: number | null }

const MOST = 1800; // half an hour of seconds

/** Wait share and throughput since this page was opened. */
export function history(): { element: HTMLElement; add: (point: Point) => void } {
  const box = el("div", { class: "chart", role: "img", "aria-label": "wait share and throughput since this page was opened" });
  const element = section("history", "Since this page was opened", box);
  element.hidden = true;
  let points: Point[] = [];
  let plot: uPlot | null = null;
  const data = (): uPlot.AlignedData => [points.map((p) => p.at), points.map((p) => p.wait), points.map((p) => p.rate)];
  const draw = (): void => {
    plot?.destroy();
    plot = box.clientWidth === 0 ? null : new uPlot(options(box.clientWidth), data(), box);
  };
  new ResizeObserver(() => { if (box.clientWidth !== plot?.width) draw(); }).observe(box);
  onTheme(draw);
  return {
    element,
    add: (point) => {
      if (point.at <= (points.at(-1)?.at ?? -1)) return; // seen already: the stream began anew
      points = [...points, point].slice(-MOST);
      element.hidden = points.length < 2;
      if (plot) plot.setData(data()); else draw();
    },
  };
}

function options(width: number): uPlot.Options {
  return {
    width, height: 220, cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false }, share: { range: [0, 1] }, rate: { range: (_, __, most) => [0, (most || 1) * 1.1] } },
    axes: [axis(tick, { size: 34 }), axis(percent, { scale: "share", size: 54 }), axis(round, { scale: "rate", side: 1, size: 60, grid: { show: false } })],
    series: [
      { label: "at", value: value(duration) },
      { label: "host waits", scale: "share", stroke: colour("wait"), width: 1.5, points: { show: false }, value: value(percent) },
      { label: "throughput", scale: "rate", stroke: colour("cause-compute"), width: 1.5, points: { show: false }, value: value(rate) },
    ],
    hooks: legendHooks,
  };
}
