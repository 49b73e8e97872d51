import "uplot/dist/uPlot.min.css";
import "../style.css";
import "./app.css";
import { el } from "../dom";
import { toggleTheme } from "../theme";
import { runList } from "./list";
import { liveView } from "./live";

const LIVE = "/live/";

const into = document.getElementById("page");
if (into) { // a refusal comes as a finished page, without this script
  const { pathname } = location;
  into.replaceChildren(
    el("header", {},
      pathname === "/" ? el("span", { class: "logo" }, "unstarve") : el("a", { class: "logo", href: "/", title: "all runs" }, "← unstarve"),
      el("code", { class: "command", id: "place" }),
      el("button", { type: "button", class: "theme", title: "light or dark", "aria-label": "switch between light and dark", click: toggleTheme }, "◐")),
    pathname.startsWith(LIVE) ? liveView(pathname.slice(LIVE.length)) : runList());
  into.dataset["ready"] = "true";
}
