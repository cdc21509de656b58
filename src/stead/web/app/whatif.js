// @ts-check
// Sliders: the same placement on another machine, simulated while the slider moves; solving it anew is a job.

import {html, nothing, render} from 'lit-html';
import {oneAtATime, post} from 'app/api';
import {trouble} from 'app/parts';
import {change, percent, seconds} from 'stead/units';

const AMOUNTS = /** @type {Record<string, number[]>} */ ({batch: [1, 2, 4, 8, 16, 32, 64, 128, 256], context: [512, 1024, 2048, 4096, 8192, 16384, 32768]});

/** @param {HTMLElement} root @param {any} plan @param {[number, number][]} moves  by hand @param {number} now  seconds after them */
export function whatIf(root, plan, moves, now) {
  const knobs = [
    ...(plan.links ? [['links.bandwidth', 'bandwidth of all links'], ['links.latency', 'latency of all links']] : []),
    ...plan.cluster.flatMap((/** @type {any} */ d) => [...(d.flops ? [[`${d.name}.flops`, `FLOP/s of ${d.name}`]] : []), ...(d.bandwidth ? [[`${d.name}.bandwidth`, `memory bandwidth of ${d.name}`]] : []), [`${d.name}.memory`, `memory of ${d.name}`]]),
  ];
  /** @type {Map<string, number>} */
  const at = new Map();
  /** @type {any} */
  const state = {found: null, error: null};
  /** @type {Map<string, number>} */
  const sizes = new Map(); // batch and context, where they are not those of the plan
  const sets = () => [...[...at].filter(([, x]) => x !== 1).map(([name, x]) => `${name}=${x.toFixed(4)}x`), ...[...sizes].map(([name, amount]) => `${name}=${amount}`)];
  const ask = oneAtATime(async () => {
    state.error = null;
    try { state.found = sets().length ? await post(`/plans/${plan.id}/what-if`, {set: sets(), moves}) : null; } catch (error) { state.found = null; state.error = error; }
    drawn();
  });
  const again = async () => {
    try { location.hash = `#/solving/${(await post('/jobs', {verb: 'what-if', plan: plan.id, from: plan.id, title: `${plan.name}, ${sets().join(', ')}`, set: sets(), time_limit: 20})).job}`; } catch (error) { state.error = error; drawn(); }
  };
  const drawn = () => render(html`<section class="card" aria-label="What if"><details id="what-if" ?open=${at.size + sizes.size > 0}><summary><b>What if</b> <span class="soft">the machine or the model's size were another? This plan is simulated there at once; solving it anew shows what that is worth.</span></summary>
    <div class="sliders">${knobs.map(([name, said]) => html`<label class="slider"><span>${said}</span><input type="range" min="-2" max="2" step="0.25" data-knob=${name} .value=${String(Math.log2(at.get(name) ?? 1))} @input=${(/** @type {any} */ e) => { at.set(name, 2 ** Number(e.target.value)); drawn(); ask(undefined); }}><span class="num">${Number((at.get(name) ?? 1).toFixed(2))}×</span></label>`)}
      ${Object.entries(AMOUNTS).filter(([name]) => plan.sizes.includes(name)).map(([name, amounts]) => html`<label class="slider"><span>${name}</span><input type="range" min="-1" max=${amounts.length - 1} step="1" data-knob=${name} .value=${String(sizes.has(name) ? amounts.indexOf(sizes.get(name) ?? 0) : -1)} @input=${(/** @type {any} */ e) => { const i = Number(e.target.value); if (i < 0) sizes.delete(name); else sizes.set(name, amounts[i]); drawn(); ask(undefined); }}><span class="num">${sizes.get(name) ?? 'as is'}</span></label>`)}</div>
    <div class="line" id="whatif" role="status">${state.error ? trouble(state.error) : state.found ? (state.found.seconds === null ? html`<b class="bad">this plan does not work there: ${state.found.trouble}</b>` : html`this plan: <b>${seconds(state.found.seconds)}</b> <span class=${state.found.change > 0 ? 'bad' : 'good'}>${change(state.found.change)} (${state.found.change > 0 ? '+' : state.found.change < 0 ? '−' : ''}${percent(Math.abs(state.found.change) / now)})</span>`) : html`<span class="soft">Move a slider.</span>`}
      ${sets().length ? html`${moves.length ? html`<span class="soft">save the plan to solve it anew there</span>` : html`<button id="resolve" @click=${again}>solve anew there</button>`}<button @click=${() => { at.clear(); sizes.clear(); state.found = null; state.error = null; drawn(); }}>reset</button>` : nothing}</div></details></section>`, root);
  drawn();
}
