// @ts-check
// Links of a cluster as a matrix that can be edited: what is typed becomes a change in the text of --devices.

import {html, nothing} from 'lit-html';
import {changeOf, withChange} from 'app/devices';
import {rate, seconds} from 'stead/units';

const MOST = 8; // devices of a matrix

/** @typedef {{source: string, target: string, bytes_per_second: number | null, latency_seconds: number, kind: string, fabric: string}} Link */

/** Rows send, columns receive. @param {string} text @param {any} checked @param {boolean} both  edit both ways at once @param {(text: string) => void} set @param {(both: boolean) => void} setBoth */
export function linkMatrix(text, checked, both, set, setBoth) {
  /** @type {{name: string}[]} */
  const devices = checked.devices, letter = (/** @type {number} */ i) => String.fromCharCode(65 + i);
  /** @type {Link[]} */
  const links = checked.links;
  if (!links.length || devices.length > MOST) return nothing;
  const one = (/** @type {string} */ a, /** @type {string} */ b) => links.find((link) => link.source === a && link.target === b);
  /** The text with a property of a link set, one way or both; the other way stays as it was. @param {string} so @param {Link} link @param {string} what @param {string} value */
  const changed = (so, {source, target}, what, value) => {
    const own = `${source}->${target}.${what}`, back = `${target}->${source}.${what}`, pair = [`${source}<->${target}.${what}`, `${target}<->${source}.${what}`];
    const wide = pair.map((key) => changeOf(so, key)).find((one) => one !== undefined);
    let next = [own, ...pair, ...(both ? [back] : [])].reduce((text, key) => withChange(text, key, ''), so);
    if (!both && wide !== undefined) next = withChange(next, back, wide);
    return withChange(next, both ? pair[0] : own, value);
  };
  /** What the text says of a property of a link, if it does. @param {Link} link @param {string} what */
  const given = ({source, target}, what) => [`${source}->${target}`, `${source}<->${target}`, `${target}<->${source}`].map((ends) => changeOf(text, `${ends}.${what}`)).find((one) => one !== undefined);
  const field = (/** @type {Link} */ link, /** @type {'bandwidth' | 'latency'} */ what, /** @type {string} */ now) => html`<input type="text" class=${given(link, what) === undefined ? '' : 'given'} aria-label=${`${what} from ${link.source} to ${link.target}`} data-link=${`${link.source}->${link.target}.${what}`} .value=${given(link, what) ?? ''} placeholder=${now} @change=${(/** @type {any} */ e) => set(changed(text, link, what, e.target.value.trim()))}>`;
  /** A kind is both figures at once: those that were given before it are taken back. @param {Link} link @param {string} value */
  const ofKind = (link, value) => set(changed(['bandwidth', 'latency'].reduce((so, what) => changed(so, link, what, ''), text), link, 'kind', value));
  const kind = (/** @type {Link} */ link) => {
    const names = [...(link.fabric ? [link.fabric] : []), ...checked.kinds], own = given(link, 'bandwidth') ?? given(link, 'latency');
    const now = own === undefined && link.kind ? given(link, 'kind') ?? link.kind : ''; // several kinds have the same figures
    if (now && !names.includes(now)) names.unshift(now);
    return html`<select class=${given(link, 'kind') === undefined ? '' : 'given'} aria-label=${`kind of link from ${link.source} to ${link.target}`} data-link=${`${link.source}->${link.target}.kind`} @change=${(/** @type {any} */ e) => ofKind(link, e.target.value)}><option value="" .selected=${!now}>${now ? 'the usual' : 'own figures'}</option>${names.map((name) => html`<option value=${name} .selected=${name === now}>${name}</option>`)}</select>`;
  };
  return html`<details id="links" ?open=${/->/.test(text)}><summary class="soft">links: kind, bandwidth and latency</summary><div class="scroll"><table class="matrix"><thead><tr><th>from ↓ to →</th>${devices.map((_, i) => html`<th>${letter(i)}</th>`)}</tr></thead><tbody>
    ${devices.map((a, i) => html`<tr><th scope="row">${letter(i)} ${a.name}</th>${devices.map((b) => { const link = one(a.name, b.name); return html`<td>${link ? html`${kind(link)}${field(link, 'bandwidth', rate(link.bytes_per_second).replace(' ', ''))}${field(link, 'latency', seconds(link.latency_seconds).replace(' ', ''))}` : nothing}</td>`; })}</tr>`)}</tbody></table></div>
    <label class="field"><input type="checkbox" id="both-ways" .checked=${both} @change=${(/** @type {any} */ e) => setBoth(e.target.checked)}> change both ways at once</label></details>`;
}
