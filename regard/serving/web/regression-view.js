// Kernel regression on measured data, which is attention with fixed keys and values.

import { make } from '../web/dom.js';
import { latestOnly, request } from './api.js';
import { buttonGroup, slider, statusArea } from './controls.js';
import { RegressionPlot } from './regression-plot.js';

const KERNELS = ['gaussian', 'boxcar', 'epanechnikov'];
const WIDTHS = { min: 0.2, max: 20 };

export function regressionView(main, help) {
  const { words } = help;
  const number = (text, initial, min, max) => (Number.isFinite(Number(text)) && text ? Math.min(max, Math.max(min, Number(text))) : initial);
  const state = {
    kernel: KERNELS.includes(help.state.kernel) ? help.state.kernel : 'gaussian',
    width: number(help.state.width, 2, WIDTHS.min, WIDTHS.max),
    at: number(help.state.at, 20, 0, 60),
  };
  const status = statusArea(help);
  const board = make('div', { class: 'board' });
  const result = make('p', { class: 'result', 'aria-live': 'polite' });
  const errorText = make('p', { class: 'note number' });
  const ms = (value) => words('widthHint', { width: value.toFixed(1) });
  const width = slider(words('width'), { ...WIDTHS, step: 0.1, value: state.width, format: ms }, (value) => change({ width: value }));
  const query = slider(words('at'), { min: 0, max: 60, step: 0.5, value: state.at, format: ms }, (value) => change({ at: value }));
  const kernels = buttonGroup(words('kernel'), KERNELS.map((one) => [one, words(one)]), state.kernel, (kernel) => change({ kernel }));
  main.append(status.element, make('section', { class: 'sheet regression' },
    make('h1', {}, words('motorcycle')), make('p', { class: 'note' }, words('motorcycleText')),
    make('div', { class: 'line controls' }, kernels, width.element, query.element),
    board, result, errorText));
  const plot = new RegressionPlot(board, words, (at) => {
    query.set(at);
    change({ at });
  });
  const compute = latestOnly(async () => {
    try {
      const found = await request(`v1/regression?${new URLSearchParams(state)}`);
      status.clear();
      plot.show(found);
      describe(found);
    } catch (error) {
      status.error(error, error.code === 'unreachable' ? compute : null);
    }
  });
  change({});

  function change(changes) {
    Object.assign(state, changes);
    help.keep({ ...state });
    plot.move(state.at);
    compute();
  }

  function describe({ at, prediction, weights, error, num_isolated: isolated }) {
    const count = weights.filter((weight) => weight > 0.0005).length;
    const values = { at: at.toFixed(1), value: prediction?.toFixed(1).replace('-', '−'), count };
    result.textContent = words(prediction === null ? 'noPrediction' : 'predictionAt', values);
    const more = isolated ? ` ${words('isolated', { n: isolated })}` : '';
    errorText.textContent = error === null ? more : words('regressionError', { error: error.toFixed(1) }) + more;
  }
}
