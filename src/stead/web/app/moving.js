// @ts-check
// Moving boxes by hand: drag one onto a device, or select it and choose where; every move is scored by the simulator.

import {html, nothing, render} from 'lit-html';
import {oneAtATime, post} from 'app/api';
import {bytes, change, counted, percent, seconds} from 'stead/units';

/** @typedef {{moves: [number, number][], scored: any, hovered: any, error: any}} Moving */

/**
 * @param {HTMLElement} bar @param {any} mounted @param {any} view @param {string} plan @param {any[]} moves
 * @param {AbortSignal} signal @param {{apply: (moves: [number, number][]) => void, pin: (moves: [number, number][]) => void, save: (moves: [number, number][]) => void}} acts
 */
export function moving(bar, mounted, view, plan, moves, signal, acts) {
  const {store, graph} = mounted, devices = view.head.devices;
  /** @type {any} */
  const state = {scored: null, hovered: null, error: null, busy: false};
  const ask = async (/** @type {any[]} */ list) => post(`/plans/${plan}/score`, {moves: list});
  const hover = oneAtATime(async (/** @type {{box: number, device: number}} */ {box, device}) => {
    try { state.hovered = {box, device, ...(await ask([...moves, [box, device]]))}; state.error = null; } catch (error) { state.hovered = null; state.error = error; }
    drawn();
  });
  const apply = async (/** @type {number} */ box, /** @type {number} */ device) => {
    if (state.busy) return;
    state.busy = true;
    try {
      const found = await ask([...moves, [box, device]]);
      if (!found.feasible && found.seconds === null) { state.hovered = {box, device, ...found}; drawn(); return; }
      acts.apply([...moves, [box, device]]);
    } catch (error) { state.error = error; drawn(); } finally { state.busy = false; }
  };
  const drawn = () => render(shown(), bar);
  const verdict = (/** @type {any} */ one) => (one.feasible ? html`<b class=${one.change > 0 ? 'bad' : one.change < 0 ? 'good' : ''}>${change(one.change)} (${one.change > 0 ? '+' : one.change < 0 ? '−' : ''}${percent(Math.abs(one.change) / (one.seconds - one.change))})</b>`
    : html`<b class="bad">does not work</b> ${Object.entries(one.short).map(([name, b]) => `${name} is ${bytes(Number(b))} short`).join(', ') || one.problems.join('; ')}`);
  const shown = () => {
    const {box} = store.state, chosen = box > 0 ? view.boxes[box] : null;
    return html`<span class="grow" id="moved" role="status">${state.hovered ? html`<b>${view.boxes[state.hovered.box].path}</b> to ${devices[state.hovered.device].letter}: ${verdict(state.hovered)}`
      : state.error ? html`<span class="bad">${state.error.message}</span>`
      : state.scored && moves.length ? html`${verdict(state.scored)}, now ${seconds(state.scored.seconds)}; ${counted(moves.length, 'move')} from the plan`
      : 'Drag a box onto a device, or select one and choose where it goes: the whole is simulated anew.'}</span>
      ${chosen ? html`<span>move <b>${chosen.path}</b> to ${devices.map((/** @type {any} */ d, /** @type {number} */ i) => html`<button class="round" id=${`to-${d.letter}`} title=${`${d.name}, Shift+${d.letter}`} @pointerenter=${() => hover({box, device: i})} @pointerleave=${clear} @focus=${() => hover({box, device: i})} @blur=${clear} @click=${() => apply(box, i)}>${d.letter}</button> `)}</span>` : nothing}
      ${moves.length ? html`<button id="undo" @click=${() => acts.apply(moves.slice(0, -1))}>undo</button><button id="pin" @click=${() => acts.pin(moves)}>pin these and solve again</button><button id="save" @click=${() => acts.save(moves)}>save as plan</button>` : nothing}`;
  };
  const clear = () => { state.hovered = null; drawn(); };
  store.listen((/** @type {any} */ changed) => { if ('box' in changed) { state.hovered = null; drawn(); } });
  if (moves.length) ask(moves).then((found) => { state.scored = found; drawn(); }, (error) => { state.error = error; drawn(); });
  drag(graph, view, signal, hover, clear, apply);
  document.addEventListener('keydown', (e) => {
    if (e.target instanceof HTMLInputElement || e.ctrlKey || e.metaKey || e.altKey) return;
    const d = e.shiftKey ? devices.findIndex((/** @type {any} */ one) => one.letter === e.key) : -1;
    if (d >= 0 && store.state.box > 0) apply(store.state.box, d);
    else if (e.key === 'u' && moves.length) acts.apply(moves.slice(0, -1));
  }, {signal});
  drawn();
}

/** The device whose card is under the pointer; -1: none. @param {number} x @param {number} y @param {any} view */
function deviceAt(x, y, view) {
  const card = document.elementFromPoint(x, y)?.closest('.dev');
  for (const one of document.querySelectorAll('.dev.target')) if (one !== card) one.classList.remove('target');
  if (!card) return -1;
  card.classList.add('target');
  const shown = view.head.devices.map((/** @type {any} */ d, /** @type {number} */ i) => ({d, i})).filter((/** @type {any} */ one) => one.d.operators || view.head.devices.length <= 6);
  return shown[[...(card.parentElement?.children ?? [])].indexOf(card)]?.i ?? -1;
}

/** @param {any} graph @param {any} view @param {AbortSignal} signal @param {(at: any) => void} hover @param {() => void} clear @param {(box: number, device: number) => void} apply */
function drag(graph, view, signal, hover, clear, apply) {
  /** @type {{box: number, x: number, y: number, ghost: HTMLElement | null, device: number} | null} */
  let held = null;
  graph.canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => { const box = graph.hit(e); if (box > 0 && e.button === 0 && e.pointerType !== 'touch') held = {box, x: e.clientX, y: e.clientY, ghost: null, device: -1}; }, {signal});
  window.addEventListener('pointermove', (e) => {
    if (!held || (!held.ghost && Math.hypot(e.clientX - held.x, e.clientY - held.y) < 6)) return;
    if (!held.ghost) { held.ghost = document.createElement('div'); held.ghost.className = 'ghost'; held.ghost.textContent = view.boxes[held.box].path; document.body.append(held.ghost); }
    held.ghost.style.left = `${e.clientX + 12}px`;
    held.ghost.style.top = `${e.clientY + 12}px`;
    const device = deviceAt(e.clientX, e.clientY, view);
    if (device !== held.device) { held.device = device; if (device >= 0) hover({box: held.box, device}); else clear(); }
  }, {signal});
  window.addEventListener('pointerup', (e) => {
    const one = held;
    held = null;
    if (!one?.ghost) return;
    one.ghost.remove();
    const device = deviceAt(e.clientX, e.clientY, view);
    for (const card of document.querySelectorAll('.dev.target')) card.classList.remove('target');
    if (device >= 0) apply(one.box, device); else clear();
  }, {signal});
}
