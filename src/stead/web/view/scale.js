// @ts-check
// The time axis: what part of a run is seen, and round marks on it.

import {seconds} from 'stead/units';

export class Camera {
  /** @param {number} end of the run, in units of the view */
  constructor(end) { this.end = end; this.t0 = 0; this.t1 = end; }

  get span() { return this.t1 - this.t0; }
  get isWhole() { return this.span > this.end * 0.9999; }

  /** @param {number} t0 @param {number} t1 */
  show(t0, t1) {
    const span = Math.min(this.end, Math.max(Math.min(64, this.end), t1 - t0));
    this.t0 = Math.max(0, Math.min(this.end - span, t0));
    this.t1 = this.t0 + span;
  }

  /** @param {number} factor @param {number} at a moment that stays where it is */
  zoom(factor, at) {
    const span = Math.min(this.end, Math.max(Math.min(64, this.end), this.span * factor)), share = (at - this.t0) / this.span;
    this.show(at - share * span, at - share * span + span);
  }

  /** @param {number} units */
  pan(units) { this.show(this.t0 + units, this.t0 + units + this.span); }
  fit() { this.show(0, this.end); }
}

/** Round numbers between two, about one per `room` of `width`. @param {number} from @param {number} to @param {number} width @param {number} room */
export function marks(from, to, width, room = 110) {
  const raw = ((to - from) * room) / Math.max(width, 1);
  if (!(raw > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(raw)), step = power * (/** @type {number} */ ([1, 2, 5, 10].find((k) => k * power >= raw * 0.999)));
  const found = [];
  for (let i = Math.ceil(from / step); i * step <= to * (1 + 1e-12); i++) found.push(i * step);
  return found;
}

/** Marks of the axis, in units, with their texts. @param {Camera} camera @param {number} unit seconds @param {number} width */
export const timeMarks = (camera, unit, width) => marks(camera.t0 * unit, camera.t1 * unit, width).map((s) => ({at: s / unit, text: s === 0 ? '0' : seconds(s)}));
