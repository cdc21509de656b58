// @ts-check
// Numbers for people.

const digits = (/** @type {number} */ x) => (Math.abs(x) >= 999.5 ? x.toFixed(0) : x.toPrecision(3));

/** A time: three digits and s, ms, µs or ns. @param {number | null | undefined} s */
export function seconds(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return '–';
  const a = Math.abs(s);
  if (a === 0) return '0 s';
  for (const [unit, scale] of /** @type {[string, number][]} */ ([['s', 1], ['ms', 1e3], ['µs', 1e6]])) if (a * scale >= 0.9995) return `${digits(s * scale)} ${unit}`;
  return `${digits(s * 1e9)} ns`;
}

/** A change of time, with its sign. @param {number} s */
export const change = (s) => (s === 0 ? '±0' : `${s > 0 ? '+' : '−'}${seconds(Math.abs(s))}`);

/** A size. @param {number | null | undefined} b */
export function bytes(b) {
  if (b === null || b === undefined) return '–';
  for (const [unit, scale] of /** @type {[string, number][]} */ ([['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 1024]])) if (Math.abs(b) >= scale) return `${(b / scale).toFixed(1)} ${unit}`;
  return `${Math.round(b)} B`;
}

/** A rate: decimal, as data sheets and device texts have it. @param {number | null} b per second */
export function rate(b) {
  if (b === null) return 'unlimited';
  const [unit, scale] = /** @type {[string, number]} */ ([['GB/s', 1e9], ['MB/s', 1e6]].find(([, least]) => b >= Number(least)) ?? ['B/s', 1]);
  return `${Number((b / scale).toPrecision(3))} ${unit}`;
}

/** A share; small ones with a digit more. @param {number} x */
export const percent = (x) => (x > 0 && x < 0.0005 ? '< 0.1 %' : `${(x * 100).toFixed(x !== 0 && Math.abs(x) < 0.0995 ? 1 : 0)} %`);

/** @param {number} n */
export const count = (n) => n.toLocaleString('en');

/** A word with its number. @param {number} n @param {string} word */
export const counted = (n, word) => `${count(n)} ${word}${n === 1 ? '' : word.endsWith('x') ? 'es' : 's'}`;

/** A name in at most so many signs, its middle left out. @param {string} text @param {number} most */
export function shortened(text, most) {
  if (text.length <= most) return text;
  const head = Math.max(1, Math.floor((most - 1) / 2));
  return `${text.slice(0, head)}…${text.slice(text.length - Math.max(1, most - 1 - head))}`;
}
