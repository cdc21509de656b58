// @ts-check
// The page of a plan: all panels around one store. `mount` is used by the report and by the app.

import {html, nothing, render} from 'lit-html';
import {devices, rules, verdict} from 'stead/bars';
import {fromBase64} from 'stead/data';
import {Graph} from 'stead/graph';
import {inspector} from 'stead/inspector';
import {links} from 'stead/links';
import {Camera} from 'stead/scale';
import {MODES, Store} from 'stead/state';
import {boxTable, sliceTable} from 'stead/tables';
import {readTheme, setRatio} from 'stead/theme';
import {Timeline} from 'stead/timeline';
import {count, counted, seconds, shortened} from 'stead/units';

const KEYS = [['Tab', 'go from panel to panel'], ['← → ↑ ↓', 'walk boxes; move the time line'], ['Enter, Backspace', 'open and close a box'], ['+ − or w s', 'zoom the time line'], ['f', 'fit it'],
  ['n p', 'next and previous critical step'], ['1 to 5', 'colour boxes by device, time, critical, memory, slack'], ['/', 'search'], ['Esc', 'clear the selection'], ['?', 'this help']];

/**
 * Show a plan in `root`; with further views, all below each other on one axis.
 * @param {HTMLElement} root @param {import('stead/data').View[]} views @param {{names?: string[], fragment?: boolean, look?: (store: Store, camera: Camera) => void, live?: boolean, more?: any}} [options]
 *   look: sets selection and zoom at first; live: where and when alone; more: the module `stead/history` (or `learning`) for one plan, `stead/compare` for several; with templates of the app for `inside`, `before`, `after`
 */
export function mount(root, views, options = {}) {
  const [view, ...others] = views, store = new Store(view), camera = new Camera(view.end), names = options.names ?? ['this plan', 'the other plan', 'a third plan', 'a fourth plan'], ending = new AbortController(), {signal} = ending;
  options.look?.(store, camera);
  readTheme();
  render(options.live ? html`<main class="view live-view">${pictures([])}</main>` : shell(view, names.slice(0, views.length), options.more), root);
  const find = (/** @type {string} */ selector) => /** @type {any} */ (root.querySelector(selector)), part = (/** @type {string} */ name) => find(`[data-part="${name}"]`);
  const tip = tooltip(find('.tip'));
  let waiting = 0;
  const soon = (/** @type {() => void} */ act) => { if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; act(); }); };
  const moved = () => soon(() => { store.set({t0: camera.t0, t1: camera.t1}); });
  const timeline = new Timeline(find('#when'), store, camera, {tip, moved, signal}), graph = new Graph(find('.scroller'), find('#where'), find('.spacer'), store, {tip, signal});
  const go = (/** @type {number} */ slice) => {
    if (slice < 0) return;
    const begin = view.col.start[slice], end = begin + view.col.dur[slice];
    if (begin < camera.t0 || end > camera.t1) camera.show((begin + end - camera.span) / 2, (begin + end + camera.span) / 2);
    store.selectSlice(slice);
  };
  /** @type {{timeline: Timeline, unit: number}[]} */
  const beside = others.map((other, i) => {
    const its = new Camera(0), theirs = new Store(other);
    const timeline = new Timeline(root.querySelectorAll('canvas.then')[i], theirs, its, {tip, moved: () => { camera.show((its.t0 * other.unit) / view.unit, (its.t1 * other.unit) / view.unit); moved(); }, signal});
    theirs.listen(() => timeline.draw());
    for (const {box} of options.more.movedBoxes(view, other)) graph.outlined.add(box.index);
    return {timeline, unit: other.unit};
  });
  camera.end = Math.max(...views.map((one) => (one.end * one.unit) / view.unit));
  for (const one of beside) one.timeline.camera.end = (camera.end * view.unit) / one.unit;
  if (beside.length) camera.fit();
  const tables = [boxTable(part('boxes'), graph), sliceTable(part('slices'), timeline, go)];
  const panels = (/** @type {any} */ changed) => {
    render(devices(view, store), part('devices'));
    if (!options.live) render(inspector(view, store, go), part('why'));
    if (!changed || 'mode' in changed || 'dim' in changed) render(controls(store, camera, moved), part('controls'));
    if (!changed || 'mode' in changed) render(modes(store), part('modes'));
    for (const table of tables) if (table.isOpen) table.draw();
  };
  const lines = () => {
    timeline.draw();
    for (const {timeline: one, unit} of beside) { one.camera.show((camera.t0 * view.unit) / unit, (camera.t1 * view.unit) / unit); one.draw(); }
    render(camera.isWhole ? nothing : html` · ${seconds(camera.span * view.unit)} of ${seconds(view.head.span_seconds)}`, part('range'));
  };
  const all = () => { readTheme(); graph.draw(); lines(); };
  store.listen((changed) => {
    if ('open' in changed) graph.arrange();
    if ('open' in changed || 'box' in changed || 'mode' in changed) graph.draw();
    lines();
    if (!('t0' in changed)) panels(changed);
    if ('box' in changed || 'slice' in changed) announce(find('.live'), store, timeline, graph);
    if (options.fragment) window.history.replaceState(null, '', `#${store.fragment()}`);
  });
  if (options.fragment && location.hash.length > 1) { store.restore(location.hash.slice(1)); camera.show(store.state.t0, store.state.t1); }
  panels(null);
  render(html`${timeline.summary()} ${view.head.timed ? '' : 'There is no time line for this objective: every device shows its own operators in a row.'}`, part('when-said'));
  render(graph.summary(), part('where-said'));
  all();
  listen(root, store, graph, all, signal);
  search(find('#search'), part('found'), store, go, graph, signal);
  if (others.length) render(options.more.compared(views, names, (box) => { store.select(box); graph.reveal(box); }), part('compared'));
  const probe = () => ({lanes: timeline.lanes.length, drawn: timeline.drawn, box: store.state.box, slice: store.state.slice, mode: store.state.mode, path: store.state.box > 0 ? view.boxes[store.state.box].path : '', boxes: graph.order.length,
    t: [camera.t0 / camera.end, camera.t1 / camera.end], outlined: graph.outlined.size, places: graph.order.map((box) => ({box, ...graph.at(box)})), scale: graph.scale, dx: graph.dx, dy: graph.dy, open: store.state.open.size});
  return {store, camera, graph, timeline, probe, moved, draw: all, leave: () => { ending.abort(); cancelAnimationFrame(waiting); }};
}

/** @param {import('stead/data').View} view @param {string[]} names  of all plans @param {any} more */
function shell(view, names, more) {
  const {head} = view;
  return html`<main class="view">
    <section class="card verdict" aria-label="Verdict">${verdict(head)}</section>
    ${names.length > 1 ? html`<section class="card" aria-label="Plans beside each other"><h2>Beside each other</h2><div data-part="compared"></div></section>` : nothing}
    ${pictures(names, html`<section class="card" aria-label="Why" data-part="why"></section>${more.inside ?? nothing}`)}
    ${head.links?.length ? html`<section class="card" aria-label="Links"><h2>What passes between devices</h2>${links(head)}</section>` : nothing}
    <section class="card" aria-label="Rules"><h2>Beside the simple rules</h2>${rules(head)}</section>
    ${more.before ?? nothing}
    ${names.length > 1 ? nothing : html`<div class="pair"><div class="column"><section class="card" aria-label="Search"><h2>How the search went</h2>${more.history(head)}${head.learning?.update ? more.learning(head) : nothing}</section>${head.sizes?.length ? html`<section class="card" aria-label="Sizes"><h2>If the model were larger</h2>${more.sizes(head)}</section>` : nothing}</div>
      <section class="card" aria-label="Sensitivity"><h2>If the machine were another</h2>${more.sensitivity(head)}</section></div>`}
    ${head.exports.length && names.length < 2 ? html`<section class="card" aria-label="Exports"><h2>Use it</h2><table class="exports"><tbody>${head.exports.map((one) => html`<tr><td>${one.name}</td><td><code>${one.command}</code></td><td><button @click=${(/** @type {Event} */ e) => copied(e, one.command)}>copy</button></td></tr>`)}</tbody></table></section>` : nothing}
    ${more.after ?? nothing}
    <section class="card" aria-label="As text">${head.text ? html`<details><summary>As text</summary><pre>${head.text}</pre></details>` : nothing}
      <p class="soft">${Object.entries(head.provenance).map(([key, value]) => `${key} ${value}`).join(' · ')}</p></section>
    <dialog class="help"><h2>Keys</h2><table><tbody>${KEYS.map(([key, does]) => html`<tr><td><kbd>${key}</kbd></td><td>${does}</td></tr>`)}</tbody></table><button @click=${(/** @type {any} */ e) => e.target.closest('dialog').close()}>close</button></dialog>
  </main>`;
}

/** Where and when, and what stands below. @param {string[]} names @param {any} [below] */
const pictures = (names, below = nothing) => html`<div class="both">
    <section class="card where" aria-label="Where"><h2>Where: modules <span data-part="modes"></span></h2>
      <div class="scroller"><canvas id="where" tabindex="0" role="img" aria-label="The model as boxes" aria-describedby="where-said"></canvas><div class="spacer"></div></div>
      <p class="soft said" id="where-said" data-part="where-said"></p>
      <label class="find">Search <input id="search" type="search" placeholder="/ module or operator" autocomplete="off" spellcheck="false"></label><div data-part="found"></div><div data-part="boxes"></div></section>
    <div class="column">
      <section class="card" aria-label="When"><div data-part="devices"></div>
        <h2><span>When: operators, transfers, memory<span data-part="range"></span></span><span data-part="controls"></span></h2>
        ${names.length > 1 ? html`<h3 class="name">${names[0]}</h3>` : nothing}<canvas id="when" tabindex="0" role="img" aria-label="Time line of devices, links and memory" aria-describedby="when-said"></canvas>
        ${names.slice(1).map((name) => html`<h3 class="name">${name}</h3><canvas class="then" tabindex="0" role="img" aria-label=${`Time line of ${name}`}></canvas>`)}
        <p class="soft said" id="when-said" data-part="when-said"></p><div data-part="slices"></div></section>
      ${below}</div></div>
    <p class="live" aria-live="polite"></p><div class="tip" role="presentation"></div>`;

/** @param {Store} store */
const modes = (store) => html`<span class="seg" role="group" aria-label="Colour by">${MODES.map((mode, i) => html`<button aria-pressed=${store.state.mode === mode} title=${`key ${i + 1}`} @click=${() => store.set({mode})}>${mode}</button>`)}</span>`;

/** @param {Store} store @param {Camera} camera @param {() => void} moved */
const controls = (store, camera, moved) => html`<span class="seg"><button aria-pressed=${store.state.dim} @click=${() => store.set({dim: !store.state.dim})}>critical path</button><button aria-label="zoom in" @click=${() => { camera.zoom(0.6, (camera.t0 + camera.t1) / 2); moved(); }}>+</button><button aria-label="zoom out" @click=${() => { camera.zoom(1 / 0.6, (camera.t0 + camera.t1) / 2); moved(); }}>−</button><button @click=${() => { camera.fit(); moved(); }}>fit</button></span>`;

/** @param {Event} e @param {string} text */
export function copied(e, text) {
  const button = /** @type {HTMLElement} */ (e.target);
  navigator.clipboard?.writeText(text).then(() => { button.textContent = 'copied'; }, () => { button.textContent = 'select and copy'; });
}

/** @param {HTMLElement} live @param {Store} store @param {Timeline} timeline @param {Graph} graph */
function announce(live, store, timeline, graph) {
  const {box, slice} = store.state;
  live.textContent = slice >= 0 ? timeline.described(store.view.lanes[store.view.col.dev[slice]], slice).join(', ') : box > 0 ? graph.described(box).join(', ') : 'Nothing is selected.';
}

/** @param {HTMLElement} host */
function tooltip(host) {
  return (/** @type {PointerEvent | null} */ e, /** @type {string[]} */ lines) => {
    host.style.display = e && lines.length ? 'block' : 'none';
    if (!e || !lines.length) return;
    render(html`${lines.map((line, i) => html`<div class=${i ? '' : 'first'}>${shortened(line, 120)}</div>`)}`, host);
    host.style.left = `${Math.max(4, Math.min(e.clientX + 14, window.innerWidth - host.offsetWidth - 8))}px`;
    host.style.top = `${Math.min(e.clientY + 16, window.innerHeight - host.offsetHeight - 8)}px`;
  };
}

/** @param {HTMLElement} root @param {Store} store @param {Graph} graph @param {() => void} all @param {AbortSignal} signal */
function listen(root, store, graph, all, signal) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', all, {signal});
  const sized = new ResizeObserver(() => requestAnimationFrame(() => { if (!signal.aborted) all(); }));
  sized.observe(root);
  signal.addEventListener('abort', () => sized.disconnect());
  window.addEventListener('beforeprint', () => { setRatio(2); graph.tall = Math.min(graph.height * graph.scale + 16, 900); all(); }, {signal});
  window.addEventListener('afterprint', () => { setRatio(0); graph.tall = 0; all(); }, {signal});
  document.addEventListener('keydown', (e) => {
    const typing = e.target instanceof HTMLInputElement;
    if (e.key === 'Escape') { store.set({box: -1, slice: -1, device: -1}); if (typing) e.target.blur(); return; }
    if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === '/') { e.preventDefault(); /** @type {HTMLElement} */ (root.querySelector('#search')).focus(); }
    else if (e.key === '?') /** @type {HTMLDialogElement | null} */ (root.querySelector('dialog.help'))?.showModal();
    else if (/^[1-5]$/.test(e.key)) store.set({mode: MODES[Number(e.key) - 1]});
  }, {signal});
}

/** Boxes first, then operators; the first few that hold the text. @param {HTMLInputElement} input @param {HTMLElement} found @param {Store} store @param {(slice: number) => void} go @param {Graph} graph @param {AbortSignal} signal */
function search(input, found, store, go, graph, signal) {
  const {view} = store;
  const show = () => {
    const text = input.value.trim().toLowerCase();
    const boxes = text ? view.boxes.filter((box) => box.index && !box.run && box.path.toLowerCase().includes(text)).slice(0, 6) : [];
    /** @type {number[]} */
    const slices = [];
    for (let i = 0; text && i < view.col.op.length && slices.length < 6; i++) if (view.col.names[view.col.op[i]].toLowerCase().includes(text)) slices.push(i);
    const choose = (/** @type {number} */ box) => { store.select(box); graph.reveal(box); };
    render(!text ? nothing : html`<ul class="found">${boxes.map((box) => html`<li><button class="link" @click=${() => choose(box.index)}>${box.path}</button> <span class="soft">${counted(box.ops, 'operator')}</span></li>`)}
      ${slices.map((i) => html`<li><button class="link" @click=${() => go(i)}>${view.col.names[view.col.op[i]]}</button> <span class="soft">operator</span></li>`)}${boxes.length + slices.length ? nothing : html`<li class="soft">Nothing of ${count(view.head.operators)} operators is called so.</li>`}</ul>`, found);
    return boxes.length ? () => choose(boxes[0].index) : slices.length ? () => go(slices[0]) : null;
  };
  input.addEventListener('input', show, {signal});
  input.addEventListener('keydown', (e) => { if (e.key === 'Enter') show()?.(); }, {signal});
}

/** Start the page that stands in a file. */
export async function start() {
  const root = /** @type {HTMLElement} */ (document.getElementById('stead'));
  try {
    const scripts = [...document.querySelectorAll('script[data-view]')], views = await Promise.all(scripts.map((script) => fromBase64(script.textContent ?? '')));
    views[0].head.text ||= document.querySelector('#plain pre')?.textContent ?? '';
    const more = await (views.length > 1 ? import('stead/compare') : views[0].head.learning?.update ? import('stead/learning') : import('stead/history'));
    const mounted = mount(root, views, {more, fragment: true, names: scripts.map((script) => /** @type {HTMLElement} */ (script).dataset.view ?? '')});
    document.getElementById('plain')?.remove(); // what stands there for readers without script
    /** @type {any} */ (window).stead = mounted;
  } catch (error) {
    document.documentElement.classList.remove('script');
    render(html`<p class="card" role="alert">This page cannot be drawn: ${error instanceof Error ? error.message : String(error)} What follows is the plan without pictures.</p>`, root);
    throw error;
  }
}
