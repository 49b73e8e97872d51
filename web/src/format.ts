// Numbers as a person reads them: three digits where they matter.

export function number(value: number): string {
  if (value === 0) return "0";
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return value.toFixed(value >= 10 ? 1 : value >= 0.1 ? 2 : 3);
}

export const percent = (share: number, digits = 1): string => `${(share * 100).toFixed(digits)} %`;

export const times = (ratio: number): string => `${ratio >= 100 ? "over 100" : ratio.toFixed(ratio >= 10 ? 1 : 2)}×`;

export function duration(seconds: number): string {
  if (seconds >= 90) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds >= 1) return `${number(seconds)} s`;
  if (seconds >= 1e-3) return `${number(seconds * 1e3)} ms`;
  return `${Math.round(seconds * 1e6)} µs`;
}

export function bytes(value: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${at === 0 ? value : number(value)} ${units[at]}`;
}
