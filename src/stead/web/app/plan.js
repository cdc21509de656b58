// @ts-check
// Plan: the page of the report, with boxes that can be moved, sliders, and files to take along. Plans: all there are.

import {html, nothing, render} from 'lit-html';
import {bytesOf, get, post, remove} from 'app/api';
import {exportPanel} from 'app/export';
import {insidePanel} from 'app/inside';
import {moving} from 'app/moving';
import {gapText, trouble} from 'app/parts';
import {asBefore, viewOver} from 'app/patched';
import {whatIf} from 'app/whatif';
import {decodeView} from 'stead/data';
import * as learning from 'stead/learning';
import {mount} from 'stead/report';
import {seconds, shortened} from 'stead/units';

const LATER = 300; // milliseconds without another move before what takes longer is asked for
const MORE = {...learning, inside: html`<div data-part="inside"></div>`, before: html`<div data-part="whatif"></div>`, after: html`<div data-part="use"></div>`}; // where panels of the app stand

/** @param {string} text @returns {[number, number][]} */
const movesFrom = (text) => text.split(',').filter(Boolean).map((one) => /** @type {[number, number]} */ (one.split('-').map(Number)));
/** @param {[number, number][]} moves */
const movesText = (moves) => moves.map(([box, device]) => `${box}-${device}`).join(',');

/** @param {HTMLElement} root @param {string} name @param {string} [given] */
export async function planScreen(root, name, given = '') {
  const [plan, packed] = await Promise.all([get(`/plans/${name}`), bytesOf(`/plans/${name}/view`)]), base = decodeView(packed);
  /** @type {unknown} */
  let problem = null;
  render(html`<div class="planhead" data-part="head"></div><div data-part="plan"></div><div class="moves" aria-label="Moves by hand"></div>`, root);
  const find = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (root.querySelector(selector));
  const jump = (/** @type {string} */ name) => { const panel = root.querySelector(`#${name}`); if (panel instanceof HTMLDetailsElement) { panel.open = true; panel.scrollIntoView({block: 'center'}); } };
  const head = () => render(html`<h1 title=${plan.name}>${shortened(plan.name, 90)}</h1><span class="line"><a href=${`/api/plans/${name}/file`} download>plan.json</a><a href=${`/api/plans/${name}/report.html`} download>report.html</a>${base.head.timed ? html`<a href=${`/api/plans/${name}/trace.json`} download>trace</a>` : nothing}
    <button class="link" id="to-whatif" @click=${() => jump('what-if')}>what if</button><button class="link" id="to-use" @click=${() => jump('use')}>export</button>
    <a href=${`#/compare/${name}`}>compare</a></span>${problem ? trouble(problem) : nothing}`, find('[data-part="head"]'));
  const attempt = async (/** @type {() => Promise<void>} */ act) => { problem = null; try { await act(); } catch (error) { problem = error; head(); scrollTo(0, 0); } };
  const acts = {
    apply: (/** @type {[number, number][]} */ next) => { location.hash = `#/plan/${name}${next.length ? `/${movesText(next)}` : ''}`; },
    save: (/** @type {[number, number][]} */ list) => attempt(async () => { location.hash = `#/plan/${(await post(`/plans/${name}/save`, {moves: list, name: `${plan.name}, moved`})).plan}`; }),
    pin: (/** @type {[number, number][]} */ list) => attempt(async () => {
      const pin = list.map(([box, device]) => `${base.boxes[box].path}=${base.head.devices[device].name}`);
      location.hash = `#/solving/${(await post('/jobs', {verb: 'place', ...(await question(plan)), pin, plan: name})).job}`;
    }),
  };
  /** @type {ReturnType<typeof mount> | null} */
  let mounted = null;
  let ending = new AbortController(), turn = 0, later = 0;
  /** Show the plan after moves, from where one looks now. @param {import('stead/data').View} view @param {[number, number][]} moves */
  const show = (view, moves) => {
    mounted?.leave();
    ending.abort();
    ending = new AbortController();
    const before = mounted, linked = location.hash.split('?')[1] ?? ''; // what is looked at is part of the address
    mounted = mount(find('[data-part="plan"]'), [view], {more: MORE, look: (store, camera) => { if (before) asBefore(before)(store, camera); else if (linked) { store.restore(linked); camera.show(store.state.t0, store.state.t1); } }});
    const {store} = mounted;
    store.listen(() => { const said = store.fragment(), [path] = location.hash.split('?'); history.replaceState(null, '', said ? `${path}?${said}` : path); });
    /** @type {any} */ (window).stead = mounted;
    moving(find('.moves'), mounted, view, name, moves, ending.signal, acts);
    whatIf(find('[data-part="whatif"]'), plan, moves, view.head.value);
    if (moves.length) for (const part of ['use', 'inside']) render(nothing, find(`[data-part="${part}"]`));
    else { exportPanel(find('[data-part="use"]'), plan); insidePanel(find('[data-part="inside"]'), mounted, view, name); }
  };
  const follow = async (/** @type {import('stead/data').View} */ view, /** @type {[number, number][]} */ moves, /** @type {number} */ mine) => {
    const more = await bytesOf(`/plans/${name}/later`, {moves});
    while (mine === turn && document.querySelector('.ghost')) await new Promise((done) => setTimeout(done, 200)); // something is being dragged
    if (mine === turn) show(viewOver(view, more), moves);
  };
  const go = async (/** @type {string} */ text) => {
    const moves = movesFrom(text), mine = ++turn;
    clearTimeout(later);
    if (!moves.length) { show(base, moves); return; }
    const view = viewOver(base, await bytesOf(`/plans/${name}/trace`, {moves}));
    if (mine !== turn) return;
    show(view, moves);
    later = window.setTimeout(() => attempt(() => follow(view, moves, mine)), LATER);
  };
  head();
  await go(given);
  const leave = () => { turn++; clearTimeout(later); mounted?.leave(); ending.abort(); };
  return Object.assign(leave, {update: (/** @type {string} */ other, text = '') => { if (other === name) attempt(() => go(text)); return other === name; }});
}

/** What was asked when the plan was made. @param {any} plan */
async function question(plan) {
  const job = plan.job ? await get(`/jobs/${plan.job}`).catch(() => null) : null;
  if (!job || job.verb !== 'place') throw new Error('The job that made this plan is not known here any more: place the model again with pins.');
  const {objective, solver, devices, time_limit} = job.request;
  const model = await post('/models', job.request.model.startsWith('zoo:') ? {zoo: job.request.model, options: job.request.options} : {path: job.request.model, options: job.request.options});
  return {model: model.model, objective: objective === 'both' ? plan.objective : objective, solver, devices, time_limit};
}

/** @param {HTMLElement} root */
export async function plansScreen(root) {
  const drawn = async () => {
    const {plans} = await get('/plans');
    render(html`<div class="screen"><section class="card wide"><h2>Plans</h2>${plans.length ? html`<table class="list"><thead><tr><th>plan</th><th class="hide-narrow">devices</th><th class="num">value</th><th class="num">gap</th><th></th></tr></thead><tbody>${plans.map((/** @type {any} */ one) => html`<tr><td class="name"><a href=${`#/plan/${one.id}`} title=${one.name}>${shortened(one.name, 60)}</a><span class="soft"> ${shortened(one.graph, 40)}</span></td><td class="hide-narrow">${shortened(one.devices, 60)}</td><td class="num">${seconds(one.seconds)}</td><td class="num">${gapText(one.bound ? one.gap : null)}</td><td><button aria-label=${`delete ${one.name}`} @click=${async () => { await remove(`/plans/${one.id}`); drawn(); }}>delete</button></td></tr>`)}</tbody></table>` : html`<p class="soft">There are no plans yet. <a href="#/place">Place a model</a> and its plan will be here.</p>`}</section></div>`, root);
  };
  await drawn();
  return undefined;
}
