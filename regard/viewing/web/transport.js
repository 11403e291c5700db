// Playback controls: buttons, a slider, keys, and the hash of the address, which always holds the current step.

import { make, makeSvg } from './dom.js';
import { localize } from './language.js';
import { TRANSPORT_TEXTS } from './transport-texts.js';

const ICONS = {
  first: 'M4 3v10M12 3.5 6.5 8l5.5 4.5z',
  back: 'M10 3.5 5.5 8l4.5 4.5',
  next: 'M6 3.5 10.5 8 6 12.5',
  last: 'M12 3v10M4 3.5 9.5 8 4 12.5z',
  play: 'M5 3v10l8-5z',
  pause: 'M5 3.5v9M11 3.5v9',
};
const STEP_TIME = 1100; // milliseconds

// The hash of the address as { name: value }.
export function readHash() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

// Update values of the hash; null removes a value. The history is not changed.
export function writeHash(values) {
  const now = { ...readHash(), ...values };
  const entries = Object.entries(now).filter(([, value]) => value !== null && value !== undefined);
  try {
    history.replaceState(null, '', `#${new URLSearchParams(entries)}`);
  } catch {
    // a frame in a notebook has no address
  }
}

// A number 0..count-1 of the hash, or a default.
export function hashNumber(name, count, fallback) {
  const text = readHash()[name];
  const number = Number(text);
  return text !== undefined && text !== '' && Number.isInteger(number) && number >= 0 && number < count
    ? number
    : fallback;
}

function icon(name) {
  return makeSvg(
    'svg',
    { class: `icon icon-${name}`, viewBox: '0 0 16 16', 'aria-hidden': 'true' },
    makeSvg('path', { d: ICONS[name] }),
  );
}

export class Transport {
  // onStep(step) is called with 0..count-1; keys are additional keys: { t: callback }.
  constructor(container, { count, language, onStep, keys = {} }) {
    this.count = count;
    this.onStep = onStep;
    this.language = language;
    this.step = Math.max(0, Math.min(count - 1, hashNumber('step', count + 1, 1) - 1));
    this.timer = null;
    this.#build(container);
    document.addEventListener('keydown', (event) => this.#key(event, keys));
    window.addEventListener('hashchange', () => this.go(hashNumber('step', count + 1, this.step + 1) - 1));
  }

  go(step) {
    this.step = Math.max(0, Math.min(this.count - 1, step));
    writeHash({ step: this.step + 1 });
    this.#show();
    this.onStep(this.step);
  }

  play() {
    if (this.timer) return;
    if (this.step === this.count - 1) this.go(0);
    this.timer = setInterval(() => {
      this.go(this.step + 1);
      if (this.step === this.count - 1) this.pause();
    }, STEP_TIME);
    this.#show();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.#show();
  }

  toggle() {
    if (this.timer) this.pause();
    else this.play();
  }

  setLanguage(language) {
    this.language = language;
    this.#show();
  }

  #build(container) {
    const move = (work) => () => {
      this.pause();
      work();
    };
    const button = (name, work, look = 'quiet') =>
      make('button', { type: 'button', class: look, onclick: work }, icon(name));
    this.buttons = {
      first: button(
        'first',
        move(() => this.go(0)),
      ),
      back: button(
        'back',
        move(() => this.go(this.step - 1)),
      ),
      play: button('play', () => this.toggle(), 'main'),
      next: button(
        'next',
        move(() => this.go(this.step + 1)),
      ),
      last: button(
        'last',
        move(() => this.go(this.count - 1)),
      ),
    };
    this.slider = make('input', {
      type: 'range',
      min: 1,
      max: this.count,
      step: 1,
      value: this.step + 1,
      oninput: () => {
        const step = Number(this.slider.value) - 1; // read it before pause() resets the slider
        this.pause();
        this.go(step);
      },
    });
    this.status = make('output', { class: 'number transport-status' });
    container.classList.add('transport');
    container.append(
      make('div', { class: 'transport-buttons' }, ...Object.values(this.buttons)),
      this.slider,
      this.status,
    );
  }

  #show() {
    const text = (key, values) => localize(TRANSPORT_TEXTS, key, this.language, values);
    for (const [name, button] of Object.entries(this.buttons)) {
      const key = name === 'play' && this.timer ? 'pause' : name;
      button.setAttribute('aria-label', text(key));
      button.title = text(key);
    }
    this.buttons.play.replaceChildren(icon(this.timer ? 'pause' : 'play'));
    this.buttons.first.disabled = this.buttons.back.disabled = this.step === 0;
    this.buttons.last.disabled = this.buttons.next.disabled = this.step === this.count - 1;
    this.slider.value = this.step + 1;
    this.slider.setAttribute('aria-label', text('step'));
    this.status.textContent = text('of', { step: this.step + 1, count: this.count });
  }

  #key(event, keys) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('select, input')) return;
    const onButton = event.target.closest('button, summary, a');
    const moves = {
      ArrowLeft: () => this.go(this.step - 1),
      ArrowRight: () => this.go(this.step + 1),
      Home: () => this.go(0),
      End: () => this.go(this.count - 1),
    };
    if (event.key in moves) {
      this.pause();
      moves[event.key]();
    } else if (event.key === ' ' && !onButton) this.toggle();
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  }
}
