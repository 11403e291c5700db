// DOM elements created without innerHTML: text is always inserted as text.

const SVG = 'http://www.w3.org/2000/svg';

// The font of canvas text, which does not inherit the style sheet.
export const FONT =
  '"Inter", "Helvetica Neue", "Segoe UI", "Noto Sans", "Noto Sans CJK SC", system-ui, sans-serif';

function fill(element, attributes, children) {
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
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// A word of user text: its direction is its own, and whitespace is made visible.
export function wordOf(text, attributes = {}, tag = 'span') {
  return make(tag, { dir: 'auto', ...attributes }, visible(text));
}

export function visible(text) {
  return text === ''
    ? '∅'
    : text.replace(/^ +| +$/g, (spaces) => '␣'.repeat(spaces.length)).replace(/[\n\r]/g, '↵');
}

// A word inside a sentence of the page, isolated so that its direction does not affect the sentence.
export function isolated(text) {
  return `\u2068${visible(text)}\u2069`;
}

// A token for display. With `marked`, ▁ marks the beginning of a word, as in BPE; a token inside a word gets a hyphen.
// Otherwise tokens are shown as they are.
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

// A function that runs `work` at most once per frame.
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
