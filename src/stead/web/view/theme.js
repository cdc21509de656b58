// @ts-check
// Colours of the page for canvases. Devices are told apart by colour and letter, beyond eight also by hatching.

export const SMALL = '11px system-ui, "DejaVu Sans", sans-serif';
const NAMES = ['ink', 'soft', 'line', 'paper', 'card', 'wash', 'accent', 'bad', 'good'];
const PALETTE = 8;

/** @type {Record<string, string>} */
export const colour = {};
/** @type {string[]} */
let devices = [];
let ratio = 0;

/** Read the colours that the style sheet has chosen. */
export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of NAMES) colour[name] = style.getPropertyValue(`--${name}`).trim();
  devices = Array.from({length: PALETTE}, (_, i) => style.getPropertyValue(`--d${i}`).trim());
}

/** @param {number} d */
export const deviceColour = (d) => devices[d % PALETTE];

/** Red, green and blue of a device. @param {number} d @returns {[number, number, number]} */
export function deviceRgb(d) {
  const hex = deviceColour(d).slice(1);
  return /** @type {any} */ ([0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));
}

/** Stripes over what belongs to a device beyond the eighth. @param {CanvasRenderingContext2D} c @param {number} d @param {number} x @param {number} y @param {number} w @param {number} h */
export function hatch(c, d, x, y, w, h) {
  if (d < PALETTE || w < 3) return;
  c.save();
  c.beginPath();
  c.rect(x, y, w, h);
  c.clip();
  c.globalAlpha = 0.35;
  c.strokeStyle = '#fff';
  c.lineWidth = 1.5;
  const gap = 5 + 2 * (Math.floor(d / PALETTE) - 1);
  c.beginPath();
  for (let s = x - h; s < x + w; s += gap) { c.moveTo(s, y + h); c.lineTo(s + h, y); }
  c.stroke();
  c.restore();
}

/** Draw with so many dots per pixel from now on; 0: as the screen has. @param {number} value */
export function setRatio(value) { ratio = value; }

/** A canvas of so many pixels, ready to be drawn on. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function fitted(canvas, width, height) {
  const dots = ratio || window.devicePixelRatio || 1;
  const w = Math.max(1, Math.round(width * dots)), h = Math.max(1, Math.round(height * dots));
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  canvas.style.height = `${height}px`;
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  c.setTransform(dots, 0, 0, dots, 0, 0);
  c.clearRect(0, 0, width, height);
  c.textBaseline = 'middle';
  return c;
}

/** Text that fits a width, its middle left out where it must. @param {CanvasRenderingContext2D} c @param {string} text @param {number} width */
export function fittedText(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let most = Math.floor((text.length * width) / c.measureText(text).width);
  while (most > 1) {
    const head = Math.floor((most - 1) / 2), shown = `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
    if (c.measureText(shown).width <= width) return shown;
    most--;
  }
  return '';
}
