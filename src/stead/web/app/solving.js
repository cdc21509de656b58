// @ts-check
// Solving: value, bound and gap while a job runs; what it found is shown as soon as it ends.

import {html, nothing, render} from 'lit-html';
import {bytesOf, get, hear, OVER, post} from 'app/api';
import {withChange} from 'app/devices';
import {clock, gapOf, gapText, shellWords, steps, trouble} from 'app/parts';
import {asBefore, viewOver} from 'app/patched';
import {mount} from 'stead/report';
import {count, seconds, shortened} from 'stead/units';

/** @param {HTMLElement} root @param {string} name */
export async function solvingScreen(root, name) {
  /** @type {any[]} */
  const early = []; // events that come before the job itself is known
  let listen = (/** @type {any} */ event) => { early.push(event); };
  const deaf = await hear((event) => { if (event.job === name) listen(event); });
  let job = await get(`/jobs/${name}`);
  /** @type {any} */
  const state = fresh();
  for (const event of job.events) take(state, event);
  /** @type {unknown} */
  let problem = null;
  const drawn = () => render(screen(job, state, problem, act), root);
  const act = async (/** @type {string} */ what, /** @type {any} */ body) => {
    try {
      const answer = what ? await post(`/jobs/${name}/${what}`, body) : await post('/jobs', await changed(job.request, body));
      if (answer.job) location.hash = `#/solving/${answer.job}`;
    } catch (error) { problem = error; drawn(); }
  };
  const renewed = async () => {
    const {events, ...now} = await get(`/jobs/${name}`);
    job = now;
    const over = ['done', 'stopped'].includes(job.state) && job.plans.length;
    if (over) location.replace(job.verb === 'what-if' && job.request.from ? `#/compare/${job.request.from}/${job.plans[0]}` : `#/plan/${job.plans[0]}`);
    else drawn();
  };
  const show = picture(name, () => /** @type {HTMLElement | null} */ (root.querySelector('[data-part="picture"]')));
  const ticking = setInterval(() => { drawn(); if (state.objective !== null && job.state === 'running') show(); }, 1000);
  const leave = () => { deaf(); clearInterval(ticking); show.leave(); };
  listen = (event) => {
    if (event.id <= job.last) return; // it is in what was fetched
    take(state, event);
    if (event.kind === 'job') renewed().catch((error) => { problem = error; drawn(); }); else drawn();
  };
  if (OVER.includes(job.state) && job.plans.length) { leave(); await renewed(); return undefined; }
  for (const event of early) listen(event);
  drawn();
  return leave;
}

/** The best placement so far as a picture: whole at first, then what later ones change. @param {string} name @param {() => HTMLElement | null} host */
function picture(name, host) {
  /** @type {import('stead/data').View | null} */
  let base = null;
  /** @type {ReturnType<typeof mount> | null} */
  let mounted = null;
  let had = {base: '', count: -1}, busy = false, over = false;
  const show = async () => {
    if (busy || over) return;
    busy = true;
    try {
      const data = await bytesOf(`/jobs/${name}/picture?base=${had.base}&have=${had.count}`), place = host();
      if (!data.byteLength || over || !place) return;
      const view = viewOver(base, data);
      if (!view.head.patch) base = view;
      had = view.head.picture;
      mounted?.leave();
      mounted = mount(place, [view], {look: asBefore(mounted), live: true});
      /** @type {any} */ (window).stead = mounted;
    } catch (error) { console.error(error); } finally { busy = false; }
    if (had.count < 0 && base) show();
  };
  return Object.assign(show, {leave: () => { over = true; mounted?.leave(); }});
}

const fresh = () => ({asks: [], points: [], rules: new Map(), step: '', objective: null, bound: null, boundName: '', scope: '', by: '', evaluations: 0, goal: '', unit: 'step', limit: 0, t0: 0});

/** @param {any} state @param {any} event */
function take(state, event) {
  if (event.kind === 'begin') state.limit = event.time_limit ?? 0;
  else if (event.kind === 'end') state.asks = event.asks ?? [];
  else if (event.kind === 'goal') Object.assign(state, fresh(), {limit: state.limit, goal: event.detail, unit: event.unit, t0: event.t});
  else if (event.kind === 'graphs') Object.assign(state, {bound: event.graphs[0]?.bound ?? null, rules: new Map(Object.entries(event.graphs[0]?.baselines ?? {}).map(([name, objective]) => [name, {name, objective}]))});
  else if (event.kind === 'update') {
    Object.assign(state, {objective: event.best_seconds[0], evaluations: event.evaluations, by: `update ${event.update}`, step: `learning, update ${event.update}`});
    state.points.push({t: event.t, value: event.best_seconds[0], bound: state.bound});
  } else if (event.kind === 'step') state.step = event.step;
  else if (event.kind === 'baseline') state.rules.set(event.name, event);
  else if (event.kind === 'improvement' || event.kind === 'bound') {
    Object.assign(state, {objective: event.objective, bound: event.bound, boundName: event.bound_name, scope: event.scope, by: event.found_by, evaluations: event.evaluations});
    state.points.push({t: event.t - state.t0, value: event.objective, bound: event.bound});
  }
}

/** @param {any} job @param {any} state @param {unknown} problem @param {(what: string, body?: any) => void} act */
function screen(job, state, problem, act) {
  const now = job.started ? Math.max(0, (OVER.includes(job.state) && job.ended ? job.ended : Date.now() / 1000) - job.started) : 0, gap = gapOf(state.objective, state.bound);
  const rules = [...state.rules.values()], valued = rules.filter((r) => r.objective !== null).sort((a, b) => a.objective - b.objective), without = rules.filter((r) => r.objective === null);
  return html`<div class="screen broad">
    <section class="card wide" aria-label="Search"><h2><span class="name">${shortened(job.request.title ?? job.verb, 100)} <span class="soft">on ${job.request.devices ?? ''}</span></span><span class="soft">${clock(now)}${state.limit && job.state === 'running' ? ` of ${clock(state.limit)}` : ''}</span></h2>
      ${problem ? trouble(problem) : nothing}
      ${job.state === 'queued' ? html`<p role="status">Waiting for its turn: other jobs run.</p>` : nothing}
      ${['failed', 'lost'].includes(job.state) ? failed(job, state.asks, act) : html`<div class="gapline" role="status">
        <div><p>best so far</p><div class="big">${seconds(state.objective)} <small>per ${state.unit}</small></div></div>
        <div><p>at most left to gain</p><div class="big" id="gap">${gapText(gap)}</div></div>
        <div><p>bound ${state.boundName ? `(${state.boundName}${state.scope ? `, ${state.scope}` : ''})` : ''}</p><div>${seconds(state.bound)}</div></div>
        <div><p>found by</p><div>${state.by || '–'}</div></div><div><p>evaluations</p><div>${count(state.evaluations)}</div></div></div>
        ${steps(state.points, now)}
        <div class="line"><span class="soft grow">${job.state === 'stopping' ? 'Stopping; the best is kept.' : state.step ? `now: ${state.step}` : 'reading the model'}</span>
        ${job.state === 'running' || job.state === 'queued' ? html`<button id="stop" @click=${() => act('stop')}>Stop and keep the best</button>` : nothing}</div>`}</section>
  </div><div data-part="picture" class="picture" aria-label="The best plan so far"></div><div class="screen broad">
    <section class="card" aria-label="Simple rules"><h2>Simple rules</h2>${rules.length ? nothing : html`<p class="soft">They are run first and appear here one by one.</p>`}<table class="list"><tbody>${valued.map((r) => html`<tr><td>${r.name}</td><td class="num">${seconds(r.objective)}</td></tr>`)}</tbody></table>
      ${without.length ? html`<details><summary class="soft">${count(without.length)} do not work</summary>${without.map((r) => html`<p class="soft"><b>${r.name}</b>: ${r.reason}</p>`)}</details>` : nothing}</section>
    <section class="card" aria-label="Command"><h2>The same in a shell</h2><pre>${shellWords(job.command)}</pre></section>
  </div>`;
}

/** The same question with what a remedy changes in it. @param {any} request @param {Record<string, any>} asks */
async function changed(request, {set, add, batch, context, ...rest}) {
  const {model, model_id, options, devices, title: _, ...others} = request, sizes = {...(batch && {batch}), ...(context && {context})};
  const read = batch || context ? (await post('/models', {[model.startsWith('zoo:') ? 'zoo' : 'path']: model, options: {...options, ...sizes}})).model : model_id;
  const at = set?.indexOf('=') ?? -1, wider = add ? devices.replace(/^[^;]*/, (/** @type {string} */ all) => `${all.trimEnd()} + ${add}`) : devices;
  return {verb: 'place', ...others, ...rest, model: read, devices: set ? withChange(wider, set.slice(0, at), set.slice(at + 1)) : wider};
}

/** @param {any} job @param {any[]} asks  what each remedy changes @param {(what: string, body?: any) => void} act */
function failed(job, asks, act) {
  return html`<div class="alarm" role="alert"><p class="bad">${job.state === 'lost' ? 'The process ended before it was done.' : 'This did not work:'} ${job.message ?? ''}</p>
    ${job.fixes.length ? html`<p>What would help; a button solves so:</p><ul class="remedies">${job.fixes.map((/** @type {string} */ fix, /** @type {number} */ i) => html`<li>${Object.keys(asks[i] ?? {}).length ? html`<button class="remedy" @click=${() => act('', asks[i])}>${fix.replace(/ \(\d+ bytes\)$/, '')}</button>` : fix}</li>`)}</ul>` : nothing}</div>
    <div class="line"><button id="resume" @click=${() => act('resume')}>${job.state === 'lost' ? 'Resume' : 'Try again'}</button><a href="#/place">Change the question</a></div>`;
}
