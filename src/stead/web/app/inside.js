// @ts-check
// What is inside a box: the next level of modules or operators, below what the picture holds, and why each is where it is.

import {html, nothing, render} from 'lit-html';
import {get, oneAtATime, post} from 'app/api';
import {trouble} from 'app/parts';
import {subject} from 'stead/inspector';
import {change, count, percent, seconds, shortened} from 'stead/units';

const LISTED = 40, OWN = '·'; // what a module does beside those within it

/** @param {HTMLElement} root @param {any} mounted @param {import('stead/data').View} view @param {string} plan */
export function insidePanel(root, mounted, view, plan) {
  const {store} = mounted;
  /** @type {any} */
  const state = {open: false, box: -1, path: '', rows: [], why: null, error: null};
  const look = oneAtATime(async (/** @type {number} */ box) => {
    if (!state.open || box === state.box) return;
    try { const {path, boxes} = await get(`/plans/${plan}/boxes?under=${box}`); Object.assign(state, {box, path, rows: boxes, why: null, error: null}); } catch (error) { state.error = error; }
    drawn();
  });
  const explain = async (/** @type {string} */ name) => {
    try { [state.why] = (await post(`/plans/${plan}/explain`, {name})).operators; state.error = null; } catch (error) { state.error = error; }
    drawn();
  };
  const opened = (/** @type {Event} */ e) => { state.open = /** @type {HTMLDetailsElement} */ (e.target).open; look(subject(view, store)); };
  const shares = (/** @type {number[]} */ by) => { const all = by.reduce((sum, s) => sum + s, 0) || 1; return by.map((s, d) => (s ? `${view.head.devices[d].letter} ${percent(s / all)} ` : '')); };
  const drawn = () => render(html`<section class="card" aria-label="Inside"><details id="inside" @toggle=${opened}><summary><b>Inside</b> <span class="soft">${state.path || 'the modules and operators of the box, one by one'}</span></summary>
    ${state.error ? trouble(state.error) : nothing}
    <div class="scroll"><table class="list"><tbody>${state.rows.slice(0, LISTED).map((/** @type {any} */ row) => html`<tr><td class="name">${row.operator !== null ? html`<button class="link" @click=${() => explain(row.operator)}>${shortened(row.operator, 70)}</button> <span class="soft">${row.name === row.operator || row.name === OWN ? '' : shortened(row.name, 40)}</span>` : html`${shortened(row.name, 70)} <span class="soft">${count(row.operators)} operators</span>`}</td><td>${shares(row.seconds)}</td><td class="num">${seconds(row.seconds.reduce((/** @type {number} */ sum, /** @type {number} */ s) => sum + s, 0))}</td><td class="num soft">${row.critical_seconds ? `${seconds(row.critical_seconds)} critical` : ''}</td></tr>`)}</tbody></table></div>
    ${state.rows.length > LISTED ? html`<p class="soft">and ${count(state.rows.length - LISTED)} more</p>` : nothing}
    ${state.why ? html`<h3 class="name">Why ${state.why.name} is on ${state.why.device}</h3><table class="list"><tbody>${state.why.alternatives.map((/** @type {any} */ one) => html`<tr><td>${one.device}</td><td class="num">${one.objective_seconds === null ? 'does not work' : seconds(one.objective_seconds)}</td><td class="num">${one.change_seconds === null ? '–' : change(one.change_seconds)}</td><td>${one.reason}</td></tr>`)}</tbody></table>` : nothing}</details></section>`, root);
  store.listen((/** @type {any} */ changed) => { if ('box' in changed) look(subject(view, store)); });
  drawn();
}
