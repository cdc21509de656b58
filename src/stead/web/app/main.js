// @ts-check
// Screens by the fragment of the address. Each is a function that draws into the page and gives back how to leave it.

import {html, render} from 'lit-html';
import {compareScreen} from 'app/beside';
import {jobsScreen} from 'app/jobs';
import {placeScreen} from 'app/place';
import {planScreen, plansScreen} from 'app/plan';
import {runsScreen} from 'app/runs';
import {solvingScreen} from 'app/solving';
import {trouble} from 'app/parts';

/** @typedef {{(): void, update?: (...rest: string[]) => boolean}} Left  ends a screen; what `update` takes over needs no new one */

/** @type {Record<string, (root: HTMLElement, ...rest: string[]) => Promise<void | Left>>} */
const SCREENS = {place: placeScreen, solving: solvingScreen, plan: planScreen, plans: plansScreen, compare: compareScreen, runs: runsScreen, jobs: jobsScreen};
const root = /** @type {HTMLElement} */ (document.getElementById('app'));
/** @type {void | Left} */
let left;
let shown = '';
let turn = 0;

async function go() {
  const [name = 'place', ...rest] = location.hash.split('?')[0].replace(/^#\/?/, '').split('/').filter(Boolean).map(decodeURIComponent);
  if (left && name === shown && left.update?.(...rest)) return;
  left?.();
  left = undefined;
  shown = name;
  const mine = ++turn;
  for (const link of document.querySelectorAll('nav a')) {
    const here = link.getAttribute('href') === `#/${{plan: 'plans', solving: 'jobs'}[name] ?? name}`;
    if (here) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  }
  const fresh = document.createElement('div');
  root.replaceChildren(fresh);
  render(html`<p class="card wait" role="status">Loading…</p>`, fresh);
  try {
    const made = await (SCREENS[name] ?? placeScreen)(fresh, ...rest);
    if (mine === turn) left = made; else made?.();
  } catch (error) {
    if (mine === turn) render(html`<div class="screen"><section class="card wide">${trouble(error)}<p><a href="#/place">Place a model</a></p></section></div>`, fresh);
  }
}

window.addEventListener('hashchange', go);
go();
