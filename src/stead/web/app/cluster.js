// @ts-check
// The cluster as cards and as the text of --devices, in both directions: the text is what is sent, cards edit its parts.

import {html, nothing} from 'lit-html';
import {changeOf, partsOf, split, textOf, withChange} from 'app/devices';
import {linkMatrix} from 'app/links';
import {bytes} from 'stead/units';

/** @typedef {import('app/devices').Part} Part */
/** @typedef {{set: (text: string, repair?: boolean) => void, both: (both: boolean) => void, load: (file: File | undefined) => void, save: () => void}} Acts */

export const PRESETS = ['3090,3060', '2x A100-80GB', '4090 + cpu 64GB', 'auto'];

/** @param {string} text @param {any} checked @param {any[]} catalogue @param {boolean} both @param {string} last @param {Acts} acts */
export function clusterEditor(text, checked, catalogue, both, last, acts) {
  const [described, changes] = split(text), whole = /^auto$/i.test(described) || checked?.file, parts = whole ? [] : partsOf(described);
  const set = (/** @type {Part[]} */ next) => acts.set([textOf(next.filter((p) => p.count > 0)), ...changes].join('; '), true);
  const change = (/** @type {number} */ i, /** @type {Partial<Part>} */ values) => set(parts.map((p, n) => (n === i ? {...p, ...values} : p)));
  const presets = last && !PRESETS.includes(last) && last !== text ? [...PRESETS, last] : PRESETS;
  const pick = (/** @type {any} */ e) => { acts.load(e.target.files[0]); e.target.value = ''; };
  return html`<div class="line"><input class="grow" type="text" id="devices" aria-label="Devices as text" spellcheck="false" .value=${text} @change=${(/** @type {any} */ e) => acts.set(e.target.value)} placeholder="2x 3090 @ pcie3x8 + cpu 64GB"></div>
    <div class="line">${presets.map((one) => html`<button class="chip" aria-pressed=${one === text} title=${one === last ? 'solved on last' : ''} @click=${() => acts.set(one)}>${one === 'auto' ? 'this machine' : one}</button>`)}</div>
    <div class="tiles">${parts.map((part, i) => tile(part, text, devicesOf(parts, i, checked), {more: (n) => change(i, {count: part.count + n}), again: () => set([...parts.slice(0, i + 1), {...part, count: 1}, ...parts.slice(i + 1)]), change: (values) => change(i, values), acts}))}${whole ? checked?.devices.map((/** @type {any} */ d) => html`<div class="tile"><p><b>${d.name}</b><span class="soft">${bytes(d.memory_bytes)}</span></p></div>`) : nothing}</div>
    <div class="line">${whole ? nothing : html`<label class="field grow">add <select aria-label="Add a device" @change=${(/** @type {any} */ e) => { if (e.target.value) set([...parts, {count: 1, name: e.target.value, memory: '', wiring: ''}]); e.target.value = ''; }}>
      <option value="">a device of the catalogue…</option>${catalogue.map((one) => html`<option value=${one.name}>${one.name}${one.memory_bytes ? ` (${bytes(one.memory_bytes)})` : ''}</option>`)}</select></label>`}
      <span class="field">device file: <label class="link">open<input type="file" id="toml" accept=".toml" hidden @change=${pick}></label> · <button class="link" id="save-toml" ?disabled=${!checked} @click=${acts.save}>save</button></span></div>
    ${checked ? linkMatrix(text, checked, both, acts.set, acts.both) : nothing}
    ${checked?.said ? html`<details><summary class="soft">how this is understood</summary>${checked.said.map((/** @type {string} */ line) => html`<p class="soft">${line}</p>`)}</details>` : nothing}`;
}

/** Devices that a card stands for. @param {Part[]} parts @param {number} i @param {any} checked @returns {any[]} */
function devicesOf(parts, i, checked) {
  const first = parts.slice(0, i).reduce((sum, part) => sum + part.count, 0);
  return checked?.devices.slice(first, first + parts[i].count) ?? [];
}

/** @param {Part} part @param {string} text @param {any[]} devices @param {{more: (n: number) => void, again: () => void, change: (values: Partial<Part>) => void, acts: Acts}} does */
function tile(part, text, devices, {more, again, change, acts}) {
  const kept = devices.map((d) => changeOf(text, `${d.name}.reserve`))[0] ?? '', usual = (/** @type {string} */ key) => (devices[0] ? bytes(devices[0][key]) : '');
  const reserve = (/** @type {any} */ e) => acts.set(devices.reduce((so, d) => withChange(so, `${d.name}.reserve`, e.target.value.trim()), text));
  return html`<div class="tile"><p><b>${part.name}</b><span class="counter"><button class="round" aria-label="one ${part.name} less" @click=${() => more(-1)}>−</button><span class="num">${part.count}</span><button class="round" aria-label="one ${part.name} more" @click=${() => more(1)}>+</button><button title="another card of this kind, with its own memory and link" aria-label="duplicate ${part.name}" @click=${again}>copy</button></span></p>
    <label class="field">memory <input type="text" .value=${part.memory} placeholder=${usual('memory_bytes')} @change=${(/** @type {any} */ e) => change({memory: e.target.value.trim()})}></label>
    <label class="field">kept free <input type="text" .value=${kept} placeholder=${usual('reserve_bytes')} ?disabled=${!devices.length} @change=${reserve}></label>
    <label class="field">link <input type="text" .value=${part.wiring} placeholder="usual" @change=${(/** @type {any} */ e) => change({wiring: e.target.value.trim()})}></label></div>`;
}
