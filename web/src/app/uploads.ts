import { el } from "../dom";
import { bytes, percent } from "../format";
import { upload } from "./api";

type Tell = (said: string) => void;

/** A button to upload run files; they may also be dropped anywhere on the page. */
export function uploads(tell: Tell, most: () => number): HTMLElement {
  const input = el("input", { type: "file", accept: ".unstarve", multiple: true, hidden: true, id: "upload-file" });
  const progress = el("span", { class: "note", id: "upload-progress" });
  const send = (files: Iterable<File>): void => { void sendAll([...files], tell, most(), (said) => { progress.textContent = said; }); };
  input.addEventListener("change", () => { send(input.files ?? []); input.value = ""; });
  takeDrops(send);
  return el("span", { class: "upload" },
    input, el("button", { type: "button", id: "upload", title: "or drop run files anywhere on this page", click: () => input.click() }, "Upload …"), progress);
}

async function sendAll(files: File[], tell: Tell, most: number, progress: Tell): Promise<void> {
  const said: string[] = [];
  for (const file of files) {
    try {
      if (file.size > most) throw new Error(`${bytes(file.size)} is more than this server accepts (${bytes(most)})`);
      const { name } = await upload(file, (share) => progress(`${file.name}: ${percent(share)}`));
      said.push(`Added: ${name}`);
    } catch (error) {
      said.push(`Not added: ${file.name}: ${error instanceof Error ? error.message : String(error)}`);
    }
    progress("");
    tell(said.join(" · "));
  }
}

function takeDrops(send: (files: Iterable<File>) => void): void {
  const holdsFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
  const over = (is: boolean): void => { document.body.classList.toggle("dropping", is); };
  addEventListener("dragover", (event) => { if (holdsFiles(event)) { event.preventDefault(); over(true); } });
  addEventListener("dragleave", (event) => { if (event.relatedTarget === null) over(false); });
  addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    over(false);
    send(event.dataTransfer?.files ?? []);
  });
}
