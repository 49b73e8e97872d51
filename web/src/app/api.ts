// Requests to the server. Python does the analysis (web/jobs.py); nothing is computed here.

export interface Summary {
  state: string; headline: string; cause: string | null; command: string; started_at: number | null; wall_s: number | null;
  steps: number | null; steps_per_s: number | null; samples_per_s: number | null; headroom: number | null;
  cut_short: boolean;
}
export interface RunLine { id: string; name: string; stale: boolean; summary: Summary | null }
export interface Listing { folder: string; max_upload_bytes: number; runs: RunLine[] }

export const RUNNING = "running";
export const UNREADABLE = "unreadable";

export async function list(): Promise<Listing> {
  return (await answered(await fetch("/api/runs"))) as Listing;
}

export async function remove(id: string): Promise<void> {
  await answered(await fetch(`/api/runs/${id}`, { method: "DELETE" }));
}

/** Sends a run file; `tell` gets the share that is sent, which fetch() does not report. */
export function upload(file: File, tell: (share: number) => void): Promise<{ id: string; name: string }> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/runs?name=${encodeURIComponent(wellFormed(file.name))}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.addEventListener("progress", (event) => { if (event.lengthComputable) tell(event.loaded / event.total); });
    request.addEventListener("error", () => reject(new Error("the server does not respond, or refused the file halfway")));
    request.addEventListener("load", () => {
      const said = parsed(request.responseText);
      if (request.status === 201) resolve(said as { id: string; name: string });
      else reject(new Error(reason(said, request.status)));
    });
    request.send(file);
  });
}

async function answered(response: Response): Promise<unknown> {
  const said = parsed(await response.text());
  if (!response.ok) throw new Error(reason(said, response.status));
  return said;
}

function parsed(text: string): unknown {
  try { return JSON.parse(text); } catch { return null; }
}

function reason(said: unknown, status: number): string {
  const error = (said as { error?: unknown } | null)?.error;
  return typeof error === "string" ? error : `the server answered ${status}`;
}

/** A name with a lone surrogate cannot be part of an address. */
const wellFormed = (text: string): string => text.replace(/\p{Surrogate}/gu, "\ufffd");
