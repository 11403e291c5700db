// Elements without HTML: text goes in as text, and nothing that was typed can become a tag.

const SVG = 'http://www.w3.org/2000/svg';

// The letters of a canvas, which does not read the style sheet.
export const FONT =
  '"Inter", "Helvetica Neue", "Segoe UI", "Noto Sans", "Noto Sans CJK SC", system-ui, sans-serif';

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// make('p', { class: 'note', onclick: f }, 'text', otherElement)
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// A word of somebody's text: its direction is its own, and an invisible one is made visible.
export function wordOf(text, attributes = {}, tag = 'span') {
  return make(tag, { dir: 'auto', ...attributes }, visible(text));
}

export function visible(text) {
  return text === ''
    ? '∅'
    : text.replace(/^ +| +$/g, (spaces) => '␣'.repeat(spaces.length)).replace(/[\n\r]/g, '↵');
}

// A word inside a sentence of ours, with whatever direction it has kept to itself.
export function isolated(text) {
  return `\u2068${visible(text)}\u2069`;
}

// A piece of a word as people read it: what does not begin a word has a hyphen. `marked` says that beginnings
// are marked, with ▁, as in BPE; where nothing is, every token stands for itself.
export function pieceOf(text, marked) {
  if (!marked || /^<.*>$/.test(text)) return text;
  return text.startsWith('▁') ? text.slice(1) || '▁' : `-${text}`;
}

// The direction of a text: that of its first letter.
export function directionOf(text) {
  const first = /\p{L}/u.exec(text);
  return first &&
    /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u.test(first[0])
    ? 'rtl'
    : 'ltr';
}

// Do `work` once before the next frame, however often it was asked for.
export function debounced(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}
