import { el } from "../dom";
import { remove, type RunLine } from "./api";

/** Asks first; says what happened, or "" if the run was kept. */
export function confirmRemoval(line: RunLine): Promise<string> {
  return new Promise((resolve) => {
    const dialog = el("dialog", { "aria-labelledby": "removal-title" },
      el("h2", { id: "removal-title" }, "Delete this run?"),
      el("p", { class: "name" }, line.name),
      el("p", { class: "note" }, "The run file is removed from the folder. This cannot be undone."),
      el("form", { method: "dialog", class: "tools" },
        el("button", { value: "", autofocus: true }, "Keep it"),
        el("button", { value: "delete", class: "danger" }, "Delete")));
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (dialog.returnValue !== "delete") { resolve(""); return; }
      remove(line.id).then(
        () => resolve(`Deleted: ${line.name}`),
        (error: unknown) => resolve(`Not deleted: ${error instanceof Error ? error.message : String(error)}`));
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
