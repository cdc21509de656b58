// @ts-check
// The cluster as cards and as the text of --devices, in both directions: the text is what is sent, cards edit its parts.

import {html, nothing} from 'lit-html';
import {bytes, seconds} from 'stead/units';

/** @typedef {{count: number, name: string, memory: string, wiring: string}} Part  one card: "2x 3090 24GB @ pcie3x8" */

export const PRESETS = ['3090,3060', '2x A100-80GB', '4090 + cpu 64GB', 'auto'];

/** @param {string} text @returns {Part[]} */
export function partsOf(text) {
  return text.split(/[,+]/).map((one) => one.trim()).filter(Boolean).map((one) => {
    const [left, wiring = ''] = one.split('@').map((part) => part.trim()), many = /^(\d+)\s*[x×*]\s*(.+)$/i.exec(left);
    const rest = many ? many[2] : left, sized = /^(.*\S)\s+(\d+(?:\.\d+)?\s*[MGT]i?B)$/i.exec(rest);
    return {count: many ? Number(many[1]) : 1, name: sized ? sized[1] : rest, memory: sized ? sized[2] : '', wiring};
  });
}

/** @param {Part[]} parts */
export const textOf = (parts) => parts.map((p) => `${p.count > 1 ? `${p.count}x ` : ''}${p.name}${p.memory ? ` ${p.memory}` : ''}${p.wiring ? ` @ ${p.wiring}` : ''}`).join(' + ');

/** @param {string} text @param {any} checked @param {any[]} catalogue @param {(text: string) => void} set */
export function clusterEditor(text, checked, catalogue, set) {
  const parts = text.trim().toLowerCase() === 'auto' ? [] : partsOf(text);
  const change = (/** @type {number} */ i, /** @type {Partial<Part>} */ values) => set(textOf(parts.map((p, n) => (n === i ? {...p, ...values} : p)).filter((p) => p.count > 0)));
  return html`<div class="line"><input class="grow" type="text" id="devices" aria-label="Devices as text" spellcheck="false" .value=${text} @change=${(/** @type {any} */ e) => set(e.target.value)} placeholder="2x 3090 @ pcie3x8 + cpu 64GB"></div>
    <div class="line">${PRESETS.map((one) => html`<button class="chip" aria-pressed=${one === text} @click=${() => set(one)}>${one === 'auto' ? 'this machine' : one}</button>`)}</div>
    <div class="tiles">${parts.map((part, i) => html`<div class="tile"><p><b>${part.name}</b><span><button class="round" aria-label="one ${part.name} less" @click=${() => change(i, {count: part.count - 1})}>−</button> <span class="num">${part.count}</span> <button class="round" aria-label="one ${part.name} more" @click=${() => change(i, {count: part.count + 1})}>+</button></span></p>
      <div class="line"><label class="field">memory <input type="text" .value=${part.memory} placeholder=${usual(checked, part)} @change=${(/** @type {any} */ e) => change(i, {memory: e.target.value.trim()})}></label>
      <label class="field">link <input type="text" .value=${part.wiring} placeholder="usual" @change=${(/** @type {any} */ e) => change(i, {wiring: e.target.value.trim()})}></label></div></div>`)}</div>
    <div class="line"><label class="field grow">add <select aria-label="Add a device" @change=${(/** @type {any} */ e) => { if (e.target.value) set(textOf([...parts, {count: 1, name: e.target.value, memory: '', wiring: ''}])); e.target.value = ''; }}>
      <option value="">a device of the catalogue…</option>${catalogue.map((one) => html`<option value=${one.name}>${one.name}${one.memory_bytes ? ` (${bytes(one.memory_bytes)})` : ''}</option>`)}</select></label></div>
    ${checked?.links?.length && checked.devices.length <= 8 ? linkMatrix(checked) : nothing}
    ${checked?.said ? html`<details><summary class="soft">how this is understood</summary>${checked.said.map((/** @type {string} */ line) => html`<p class="soft">${line}</p>`)}</details>` : nothing}`;
}

/** @param {any} checked @param {Part} part */
function usual(checked, part) {
  const found = checked?.devices?.find((/** @type {any} */ d) => d.name === part.name || d.name.startsWith(`${part.name}:`));
  return found ? bytes(found.memory_bytes) : '';
}

/** What links carry: rows send, columns receive. @param {any} checked */
function linkMatrix(checked) {
  /** @type {{name: string}[]} */
  const devices = checked.devices, letter = (/** @type {number} */ i) => String.fromCharCode(65 + i);
  /** @type {{source: string, target: string, bytes_per_second: number | null, latency_seconds: number}[]} */
  const found = checked.links, one = (/** @type {string} */ a, /** @type {string} */ b) => found.find((link) => link.source === a && link.target === b);
  return html`<details id="links"><summary class="soft">links: ${found.length} one-way</summary><div class="scroll"><table class="matrix"><thead><tr><th>from ↓ to →</th>${devices.map((_, i) => html`<th>${letter(i)}</th>`)}</tr></thead><tbody>${devices.map((a, i) => html`<tr><th scope="row">${letter(i)} ${a.name}</th>${devices.map((b) => { const link = one(a.name, b.name); return html`<td class="num">${link ? html`${link.bytes_per_second === null ? 'unlimited' : `${bytes(link.bytes_per_second)}/s`}<br><span class="soft">${seconds(link.latency_seconds)}</span>` : ''}</td>`; })}</tr>`)}</tbody></table></div></details>`;
}
