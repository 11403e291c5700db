// Kernel regression on real data: attention before it had that name.

import { make } from '../web/dom.js';
import { ask, newest } from './ask.js';
import { Curve } from './curve.js';
import { choice, newsPlace, slider } from './parts.js';

const KERNELS = ['gaussian', 'boxcar', 'epanechnikov'];
const WIDTHS = { low: 0.2, high: 20 };

export function regressionView(main, help) {
  const { words } = help;
  const number = (text, usual, low, high) => (Number.isFinite(Number(text)) && text ? Math.min(high, Math.max(low, Number(text))) : usual);
  const state = {
    kernel: KERNELS.includes(help.state.kernel) ? help.state.kernel : 'gaussian',
    width: number(help.state.width, 2, WIDTHS.low, WIDTHS.high),
    at: number(help.state.at, 20, 0, 60),
  };
  const news = newsPlace(help);
  const board = make('div', { class: 'board' });
  const says = make('p', { class: 'says', 'aria-live': 'polite' });
  const missed = make('p', { class: 'note number' });
  const ms = (value) => words('widthHint', { width: value.toFixed(1) });
  const width = slider(words('width'), { ...WIDTHS, step: 0.1, value: state.width, show: ms }, (value) => change({ width: value }));
  const moment = slider(words('at'), { low: 0, high: 60, step: 0.5, value: state.at, show: ms }, (value) => change({ at: value }));
  const kernels = choice(words('kernel'), KERNELS.map((one) => [one, words(one)]), state.kernel, (kernel) => change({ kernel }));
  main.append(news.place, make('section', { class: 'sheet crash' },
    make('h1', {}, words('crash')), make('p', { class: 'note' }, words('crashText')),
    make('div', { class: 'line controls' }, kernels, width.element, moment.element),
    board, says, missed));
  const curve = new Curve(board, words, (at) => {
    moment.set(at);
    change({ at });
  });
  const compute = newest(async () => {
    try {
      const seen = await ask(`v1/regression?${new URLSearchParams(state)}`);
      news.clear();
      curve.show(seen);
      tell(seen);
    } catch (error) {
      news.trouble(error, error.code === 'gone' ? compute : null);
    }
  });
  change({});

  function change(changes) {
    Object.assign(state, changes);
    help.keep({ ...state });
    curve.move(state.at);
    compute();
  }

  function tell({ at, prediction, weights, error, alone }) {
    const count = weights.filter((weight) => weight > 0.0005).length;
    const values = { at: at.toFixed(1), value: prediction?.toFixed(1).replace('-', '−'), count };
    says.textContent = words(prediction === null ? 'noPrediction' : 'prediction', values);
    const lonely = alone ? ` ${words('alone', { n: alone })}` : '';
    missed.textContent = error === null ? lonely : words('error', { error: error.toFixed(1) }) + lonely;
  }
}
