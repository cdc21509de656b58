// @ts-check
// Compare: two to four plans of one graph, their time lines on one axis and what moved outlined.

import {html, nothing, render} from 'lit-html';
import {bytesOf, get} from 'app/api';
import {trouble} from 'app/parts';
import * as compare from 'stead/compare';
import {decodeView} from 'stead/data';
import {mount} from 'stead/report';
import {seconds, shortened} from 'stead/units';

/** @param {HTMLElement} root @param {string[]} asked  plans by name, the first one is what others are compared with */
export async function compareScreen(root, ...asked) {
  const {plans} = await get('/plans'), known = (/** @type {string} */ id) => plans.find((/** @type {any} */ p) => p.id === id);
  const first = known(asked[0]) ?? plans.find((/** @type {any} */ p) => plans.some((/** @type {any} */ q) => q.id !== p.id && q.graph === p.graph)) ?? plans[0];
  const chosen = first ? [first, ...[...new Set(asked.slice(1))].map(known).filter((p) => p && p.id !== first.id && p.graph === first.graph)].slice(0, compare.MOST_PLANS) : [];
  const free = plans.filter((/** @type {any} */ p) => first && p.graph === first.graph && !chosen.includes(p)), go = (/** @type {string[]} */ ids) => { location.hash = `#/compare/${ids.join('/')}`; };
  const ids = chosen.map((one) => one.id);
  const choice = (/** @type {string} */ label, /** @type {any[]} */ list, /** @type {any} */ own, /** @type {(id: string) => void} */ act) => html`<select aria-label=${label} @change=${(/** @type {any} */ e) => act(e.target.value)}>${own ? nothing : html`<option value="">${label}…</option>`}${list.map((one) => html`<option value=${one.id} ?selected=${one.id === own?.id}>${shortened(one.name, 48)} · ${seconds(one.seconds)} · ${shortened(one.devices, 40)}</option>`)}</select>`;
  render(html`<div class="planhead compares"><h1>Compare</h1>${first ? html`<div>${choice('this plan', plans, first, (id) => go([id]))}</div>` : nothing}
    ${chosen.slice(1).map((one, i) => html`<div>${choice(`plan ${i + 2}`, [one, ...free], one, (id) => go(ids.with(i + 1, id)))}<button class="round" aria-label=${`without ${one.name}`} @click=${() => go(ids.filter((id) => id !== one.id))}>×</button></div>`)}
    ${free.length && chosen.length < compare.MOST_PLANS ? html`<div>${choice(chosen.length > 1 ? 'and with' : 'with', free, null, (id) => { if (id) go([...ids, id]); })}</div>` : nothing}</div>
    ${chosen.length > 1 ? nothing : html`<div class="screen"><p class="card wide soft">${free.length ? 'Choose up to three other plans of the same model.' : 'Two plans of one model are needed: solve it on other devices, move something by hand, or solve anew under “What if”.'} <a href="#/place">Place a model</a></p></div>`}<div data-part="both"></div>`, root);
  if (chosen.length < 2) return undefined;
  const place = /** @type {HTMLElement} */ (root.querySelector('[data-part="both"]')), taken = new Map();
  const names = chosen.map(({name}) => { taken.set(name, (taken.get(name) ?? 0) + 1); return taken.get(name) > 1 ? `${name} (${taken.get(name)})` : name; });
  render(html`<p class="card wait" role="status">Reading ${chosen.length} plans…</p>`, place);
  try {
    const views = (await Promise.all(chosen.map((one) => bytesOf(`/plans/${one.id}/view`)))).map(decodeView);
    render(nothing, place);
    const mounted = mount(place, views, {names, more: compare});
    /** @type {any} */ (window).stead = mounted;
    return mounted.leave;
  } catch (error) { render(html`<div class="screen"><section class="card wide">${trouble(error)}</section></div>`, place); }
  return undefined;
}
