// @ts-check
// Compare: two plans of one graph, their time lines paired and what moved outlined.

import {html, nothing, render} from 'lit-html';
import {bytesOf, get} from 'app/api';
import {trouble} from 'app/parts';
import {decodeView} from 'stead/data';
import {mount} from 'stead/report';
import {seconds} from 'stead/units';

/** @param {HTMLElement} root @param {string} [a] @param {string} [b] */
export async function compareScreen(root, a = '', b = '') {
  const {plans} = await get('/plans'), first = plans.find((/** @type {any} */ p) => p.id === a) ?? plans[0];
  const others = first ? plans.filter((/** @type {any} */ p) => p.id !== first.id && p.graph === first.graph) : [], second = others.find((/** @type {any} */ p) => p.id === b);
  const choice = (/** @type {string} */ label, /** @type {any[]} */ list, /** @type {any} */ chosen, /** @type {(id: string) => string} */ address) => html`<label class="field">${label} <select aria-label=${label} @change=${(/** @type {any} */ e) => { location.hash = address(e.target.value); }}>${chosen ? nothing : html`<option>choose…</option>`}${list.map((one) => html`<option value=${one.id} ?selected=${one.id === chosen?.id}>${one.name} (${one.devices}, ${seconds(one.seconds)})</option>`)}</select></label>`;
  render(html`<div class="planhead"><h1>Compare</h1>${plans.length > 1 ? html`${choice('this', plans, first, (id) => `#/compare/${id}`)}${choice('with', others, second, (id) => `#/compare/${first.id}/${id}`)}` : nothing}</div>
    ${plans.length < 2 || !others.length ? html`<div class="screen"><p class="card wide soft">Two plans of one model are needed: solve it on other devices, move something by hand, or solve anew under “What if”.</p></div>` : nothing}<div data-part="both"></div>`, root);
  if (!first || !second) return undefined;
  const place = /** @type {HTMLElement} */ (root.querySelector('[data-part="both"]'));
  try {
    const views = (await Promise.all([first, second].map((one) => bytesOf(`/plans/${one.id}/view`)))).map(decodeView);
    const mounted = mount(place, views, {names: [first.name, second.name === first.name ? `${second.name} (second)` : second.name]});
    /** @type {any} */ (window).stead = mounted;
    return mounted.leave;
  } catch (error) { render(html`<div class="screen"><section class="card wide">${trouble(error)}</section></div>`, place); }
  return undefined;
}
