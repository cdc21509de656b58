// @ts-check
// Views after moves: what src/stead/report/moved_view.py says, laid over the view of the plan itself.

import {assembled, unpacked} from 'stead/data';

/** A view, or one after moves: what they change, laid over the view that is there. @param {import('stead/data').View | null} base @param {ArrayBuffer} buffer @returns {import('stead/data').View} */
export function viewOver(base, buffer) {
  const {head, col: changed} = unpacked(buffer);
  if (!head.patch || !base) return assembled(head, changed);
  /** @type {Record<string, any>} */
  const col = Object.defineProperties({}, Object.getOwnPropertyDescriptors(base.col));
  if (changed.op) {
    for (const name of Object.keys(col)) if (/^m\d+(at|weights|kv|act)$/.test(name)) delete col[name]; // they follow later
    for (const name of ['box', 'kind']) {
      const own = new Uint16Array(base.head.operators);
      base.col.op.forEach((/** @type {number} */ op, /** @type {number} */ i) => { own[op] = base.col[name][i]; });
      changed[name] = Uint16Array.from(changed.op, (/** @type {number} */ op) => own[op]);
    }
    changed.bslack = base.col.bslack.slice().fill(NaN);
  }
  Object.defineProperties(col, Object.getOwnPropertyDescriptors(changed));
  return assembled({...base.head, ...head}, col);
}

/**
 * Look at a new view of the same graph as at the one before: what is selected, open and zoomed stays.
 * @param {any} before what was mounted, if anything
 */
export const asBefore = (before) => (/** @type {import('stead/state').Store} */ store, /** @type {import('stead/scale').Camera} */ camera) => {
  if (!before || before.store.view.boxes.length !== store.view.boxes.length) return;
  const {view} = store, old = before.store.view, {state} = before.store, scale = old.unit / view.unit;
  const op = state.slice >= 0 ? old.col.op[state.slice] : -1;
  Object.assign(store.state, {box: state.box, mode: state.mode, dim: state.dim, open: new Set(state.open), device: state.device, slice: op < 0 ? -1 : view.col.op.indexOf(op)});
  if (!before.camera.isWhole) camera.show(before.camera.t0 * scale, before.camera.t1 * scale);
  Object.assign(store.state, {t0: camera.t0, t1: camera.t1});
};
