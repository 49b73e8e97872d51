// Every number on the pages is formatted here, by the rules of src/unstarve/words.py:
// a share is 64%, a ratio 2.8×, an interval (2.6–2.9), a time has the unit that keeps three digits.

export const LARGEST_RATIO = 100;

/** `digits` decimals below ten, one fewer for each further digit before the point. */
function figure(value: number, digits: number): string {
  const size = Math.abs(value);
  let decimals = 0;
  for (let larger = 0; larger < digits; larger++) {
    if (size < 10 ** (larger + 1) - 0.5 * 10 ** (larger - digits)) { decimals = digits - larger; break; }
  }
  return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

export const count = (value: number): string => value.toLocaleString("en");

/** A rate, or another measured number: three digits, or the whole number. */
export const rate = (value: number): string => (value > 0 && value < 0.0995 ? value.toFixed(3) : figure(value, 2));

export function percent(share: number): string {
  const value = Math.abs(share) * 100;
  if (value === 0) return "0%";
  if (value < 0.005) return "<0.01%";
  const digits = value >= 9.95 ? 0 : value >= 0.995 ? 1 : 2;
  return `${share < 0 ? "-" : ""}${Number(value.toFixed(digits))}%`;
}

/** The difference of two shares, in percentage points. */
export const points = (difference: number): string => `${difference >= 0 ? "+" : ""}${(difference * 100).toFixed(1)} points`;

export const times = (ratio: number, digits = 2): string =>
  ratio > LARGEST_RATIO ? `more than ${LARGEST_RATIO}×` : `${figure(ratio, digits)}×`;

export const interval = (low: number, high: number, digits = 2): string => `(${figure(low, digits)}–${figure(high, digits)})`;

function scale(seconds: number): [number, string] {
  if (seconds >= 99.95 * 60) return [seconds / 3600, "h"];
  if (seconds >= 999.5) return [seconds / 60, "min"];
  if (seconds >= 0.9995) return [seconds, "s"];
  if (seconds >= 0.9995e-3) return [seconds * 1e3, "ms"];
  return seconds >= 0.9995e-6 ? [seconds * 1e6, "µs"] : [seconds * 1e9, "ns"];
}

export function duration(seconds: number): string {
  if (seconds === 0) return "0 s";
  const [value, unit] = scale(seconds);
  return `${figure(value, 2)} ${unit}`;
}

/** A number at the tick of an axis, without zeros behind the point: `20`. */
export const round = (value: number): string => Number(value.toPrecision(4)).toLocaleString("en");

/** A time at the tick of an axis, which is round: `20 ms`. Ticks that are less than a second apart keep their milliseconds. */
export function tick(seconds: number, apart = Infinity): string {
  if (seconds === 0) return "0 s";
  if (apart < 1 && seconds >= 1) return `${seconds.toFixed(apart < 1e-3 ? 6 : 3)} s`;
  if (apart >= 1 && apart < Infinity) return `${Math.round(seconds)} s`;
  const [value, unit] = scale(seconds);
  return `${Number(value.toPrecision(value >= 100 ? 6 : 3)).toLocaleString("en")} ${unit}`;
}

export function bytes(value: number): string {
  const units = ["bytes", "KB", "MB"];
  for (const unit of units) {
    if (value < 1000) return `${value.toFixed(0)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} GB`;
}
