// @ts-check
// Talking to the server: requests with its errors as sentences, and the one stream of events.

const BUSY = 503, MOST_TRIES = 5;
export const OVER = ['done', 'stopped', 'failed', 'lost']; // states of jobs

export class Refused extends Error {
  /** @param {string} sentence @param {string} hint @param {number} status */
  constructor(sentence, hint, status) { super(sentence); this.hint = hint; this.status = status; }
}

/** @param {string} method @param {string} path @param {any} [body] @returns {Promise<Response>} */
async function ask(method, path, body) {
  const raw = body instanceof Blob;
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(`/api${path}`, {method, headers: {'X-Stead': '1', ...(raw || body === undefined ? {} : {'content-type': 'application/json'})}, body: raw || body === undefined ? body : JSON.stringify(body)});
  } catch {
    throw new Refused('The server does not answer.', 'Is `stead ui` still running?', 0);
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({error: `The server answered ${answer.status}.`, hint: ''}));
  throw new Refused(said.error, said.hint, answer.status);
}

/** @param {string} path */
export const get = async (path) => (await ask('GET', path)).json();
/** @param {string} path @param {any} body */
export const post = async (path, body = {}) => (await ask('POST', path, body)).json();
/** @param {string} path */
export const remove = async (path) => (await ask('DELETE', path)).json();
/** What is computed: a request that took too long is asked again, as the server goes on and has it then. @param {string} path @param {any} [body] @returns {Promise<ArrayBuffer>} */
export async function bytesOf(path, body) {
  for (let left = MOST_TRIES; ; left--) {
    try { return await (await ask(body === undefined ? 'GET' : 'POST', path, body)).arrayBuffer(); } catch (error) {
      if (!(error instanceof Refused) || error.status !== BUSY || left <= 1) throw error;
    }
  }
}
/** @param {File} file @param {any} options */
export const upload = async (file, options) => (await ask('PUT', `/upload?name=${encodeURIComponent(file.name)}&options=${encodeURIComponent(JSON.stringify({options}))}`, file)).json();

/** @type {Set<(event: any) => void>} */
const listeners = new Set();
/** @type {EventSource | null} */
let source = null;
/** @type {Promise<void>} */
let open = Promise.resolve();

/** Hear events of all jobs from now on; what is given back ends it. Once it is there, nothing is missed. @param {(event: any) => void} listener */
export async function hear(listener) {
  listeners.add(listener);
  if (!source) {
    source = new EventSource('/api/events');
    const offline = document.getElementById('offline'), stream = source;
    open = new Promise((done) => stream.addEventListener('open', () => done(), {once: true}));
    source.onopen = () => { if (offline) offline.hidden = true; };
    source.onerror = () => { if (offline) offline.hidden = false; };
    source.addEventListener('stead', (e) => { const event = JSON.parse(/** @type {MessageEvent} */ (e).data); for (const one of listeners) one(event); });
  }
  await Promise.race([open, new Promise((done) => setTimeout(done, 2000))]); // a server that is away is no reason to wait for ever
  return () => { listeners.delete(listener); };
}

/** A job, as soon as it is over. @param {string} name */
export async function ended(name) {
  let over = () => {};
  const waiting = new Promise((done) => { over = () => done(undefined); });
  const deaf = await hear((event) => { if (event.job === name && event.kind === 'job' && OVER.includes(event.state)) over(); });
  try {
    const job = await get(`/jobs/${name}`);
    if (OVER.includes(job.state)) return job;
    await waiting;
    return await get(`/jobs/${name}`);
  } finally { deaf(); }
}

/** Call at most once at a time; while one call runs only the last of those that wait is kept. @template T @param {(given: T) => Promise<void>} act */
export function oneAtATime(act) {
  let busy = false;
  /** @type {{given: T} | null} */
  let waiting = null;
  return async function next(/** @type {T} */ given) {
    if (busy) { waiting = {given}; return; }
    busy = true;
    try { await act(given); } finally {
      busy = false;
      if (waiting) { const {given: later} = waiting; waiting = null; next(later); }
    }
  };
}
