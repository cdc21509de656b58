// @ts-check
// Memory of one device over time: weights, caches of keys and values, and all that comes and goes, stacked.

import {lower} from 'stead/data';
import {SMALL, colour, deviceColour, fittedText} from 'stead/theme';
import {bytes, percent} from 'stead/units';

const NEAR = 0.4; // of the limit: from there on the limit is part of the picture
const PARTS = /** @type {const} */ ([['weights', 0.85], ['kv', 0.55], ['act', 0.3]]);

/** Devices whose memory is known. @param {import('stead/data').View} view */
export const memoryDevices = (view) => view.head.devices.map((_, d) => d).filter((/** @type {number} */ d) => view.col[`m${d}at`]?.length);

/** @param {import('stead/lanes').Frame} f @param {number} d @param {number} y @param {number} h */
export function drawMemory(f, d, y, h) {
  const {c, view, left, width, t0, k} = f, device = view.head.devices[d], at = view.col[`m${d}at`];
  const parts = PARTS.map(([name]) => view.col[`m${d}${name}`]), limit = device.limit, peak = Math.max(device.peak ?? 0, 1);
  const near = limit !== null && peak > NEAR * limit, top = (near ? Math.max(limit, peak) : peak) * 1.08, pixels = Math.floor(width);
  c.fillStyle = colour.wash;
  c.fillRect(left, y, width, h);
  const levels = sampled(at, parts, t0, k, pixels);
  for (let part = PARTS.length - 1; part >= 0; part--) {
    c.beginPath();
    c.moveTo(left, y + h);
    let before = NaN;
    for (let x = 0; x < pixels; x++) {
      let sum = 0;
      for (let p = 0; p <= part; p++) sum += levels[p][x];
      if (sum === before) continue;
      if (x) c.lineTo(left + x, y + h - (before / top) * h);
      c.lineTo(left + x, y + h - (sum / top) * h);
      before = sum;
    }
    c.lineTo(left + width, y + h - (before / top) * h);
    c.lineTo(left + width, y + h);
    c.closePath();
    c.globalAlpha = 1;
    c.fillStyle = colour.wash;
    c.fill();
    c.globalAlpha = PARTS[part][1];
    c.fillStyle = deviceColour(d);
    c.fill();
    c.globalAlpha = 1;
    if (part === PARTS.length - 1) { c.strokeStyle = deviceColour(d); c.lineWidth = 1; c.stroke(); }
  }
  if (near) {
    c.strokeStyle = colour.bad;
    c.setLineDash([4, 3]);
    c.beginPath();
    c.moveTo(left, y + h - (limit / top) * h);
    c.lineTo(left + width, y + h - (limit / top) * h);
    c.stroke();
    c.setLineDash([]);
  }
  if (device.peak_at !== null) {
    const x = left + (device.peak_at - t0) * k;
    if (x >= left - 1 && x <= left + width) {
      c.fillStyle = colour.ink;
      c.beginPath();
      c.arc(Math.max(left + 3, Math.min(x, left + width - 3)), y + h - (peak / top) * h, 3.5, 0, 7);
      c.fill();
    }
  }
  label(c, device, d, left, y, limit, peak);
}

/** @param {CanvasRenderingContext2D} c @param {any} device @param {number} d @param {number} left @param {number} y @param {number | null} limit @param {number} peak */
function label(c, device, d, left, y, limit, peak) {
  c.font = SMALL;
  c.textAlign = 'right';
  const room = left - 12;
  c.fillStyle = colour.ink;
  c.fillText(fittedText(c, `${device.letter} memory`, room), left - 8, y + 9);
  c.fillStyle = colour.soft;
  c.fillText(fittedText(c, left > 100 ? `peak ${bytes(peak)}` : bytes(peak), room), left - 8, y + 24);
  if (limit !== null) c.fillText(fittedText(c, left > 100 ? `${percent(peak / limit)} of limit` : percent(peak / limit), room), left - 8, y + 39);
}

/** What is held at every pixel: of the steps in it, the highest. @param {Uint32Array} at @param {Float32Array[]} parts @param {number} t0 @param {number} k @param {number} pixels */
function sampled(at, parts, t0, k, pixels) {
  const levels = parts.map(() => new Float32Array(pixels));
  let i = Math.max(0, lower(at, 0, at.length, t0 + 1e-9) - 1);
  if (at[i] > t0 && i) i--;
  const total = (/** @type {number} */ s) => parts.reduce((sum, part) => sum + part[s], 0);
  for (let x = 0; x < pixels; x++) {
    const until = t0 + (x + 1) / k;
    let best = i;
    while (i + 1 < at.length && at[i + 1] < until) { i++; if (total(i) > total(best)) best = i; }
    parts.forEach((part, p) => { levels[p][x] = part[best]; });
  }
  return levels;
}
