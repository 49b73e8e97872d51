import "../style.css";
import "./app.css";
import { el } from "../dom";
import { toggleTheme } from "../theme";
import { runList } from "./list";

const into = document.getElementById("page");
// A refusal comes as a finished page, without this script.
if (into) {
  const home = location.pathname === "/";
  into.replaceChildren(
    el("header", {},
      home ? el("span", { class: "logo" }, "unstarve") : el("a", { class: "logo", href: "/", title: "all runs" }, "← unstarve"),
      el("code", { class: "command", id: "place" }),
      el("button", { type: "button", class: "theme", title: "light or dark", "aria-label": "switch between light and dark", click: toggleTheme }, "◐")),
    runList());
  into.dataset["ready"] = "true";
}
