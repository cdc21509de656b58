// @ts-check
// Links of a cluster as a matrix that can be edited: what is typed becomes a change in the text of --devices.

import {html, nothing} from 'lit-html';
import {changeOf, withChange} from 'app/devices';
import {rate, seconds} from 'stead/units';

const MOST = 8; // devices of a matrix

/** @typedef {{source: string, target: string, bytes_per_second: number | null, latency_seconds: number}} Link */

/** Rows send, columns receive. @param {string} text @param {any} checked @param {boolean} both  edit both ways at once @param {(text: string) => void} set @param {(both: boolean) => void} setBoth */
export function linkMatrix(text, checked, both, set, setBoth) {
  /** @type {{name: string}[]} */
  const devices = checked.devices, letter = (/** @type {number} */ i) => String.fromCharCode(65 + i);
  /** @type {Link[]} */
  const links = checked.links;
  if (!links.length || devices.length > MOST) return nothing;
  const one = (/** @type {string} */ a, /** @type {string} */ b) => links.find((link) => link.source === a && link.target === b);
  const field = (/** @type {Link} */ {source, target}, /** @type {'bandwidth' | 'latency'} */ what, /** @type {string} */ now) => {
    const own = `${source}->${target}.${what}`, pair = [`${source}<->${target}.${what}`, `${target}<->${source}.${what}`];
    const given = changeOf(text, own) ?? pair.map((key) => changeOf(text, key)).find((value) => value !== undefined);
    const change = (/** @type {any} */ e) => {
      const back = `${target}->${source}.${what}`, wide = pair.map((key) => changeOf(text, key)).find((value) => value !== undefined);
      let next = [own, ...pair, ...(both ? [back] : [])].reduce((so, key) => withChange(so, key, ''), text);
      if (!both && wide !== undefined) next = withChange(next, back, wide); // the other way stays as it was
      set(withChange(next, both ? pair[0] : own, e.target.value.trim()));
    };
    return html`<input type="text" class=${given === undefined ? '' : 'given'} aria-label=${`${what} from ${source} to ${target}`} data-link=${own} .value=${given ?? ''} placeholder=${now} @change=${change}>`;
  };
  return html`<details id="links" ?open=${/->/.test(text)}><summary class="soft">links: bandwidth and latency</summary><div class="scroll"><table class="matrix"><thead><tr><th>from ↓ to →</th>${devices.map((_, i) => html`<th>${letter(i)}</th>`)}</tr></thead><tbody>
    ${devices.map((a, i) => html`<tr><th scope="row">${letter(i)} ${a.name}</th>${devices.map((b) => { const link = one(a.name, b.name); return html`<td>${link ? html`${field(link, 'bandwidth', rate(link.bytes_per_second).replace(' ', ''))}${field(link, 'latency', seconds(link.latency_seconds).replace(' ', ''))}` : nothing}</td>`; })}</tr>`)}</tbody></table></div>
    <label class="field"><input type="checkbox" id="both-ways" .checked=${both} @change=${(/** @type {any} */ e) => setBoth(e.target.checked)}> change both ways at once</label></details>`;
}
