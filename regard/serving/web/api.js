// Requests to the server. What goes wrong becomes an ApiError, which has a sentence in the reader's language.

import { detectLanguage, localize } from '../web/language.js';
import { ERRORS, TEXTS } from './texts.js';

export class ApiError extends Error {
  constructor(code, message = '', values = {}) {
    super(message || code);
    this.code = code;
    this.values = values;
  }

  // The server's sentences are English; known codes have one in every language.
  localized(language) {
    const isKnown = this.code in (ERRORS[language] || {});
    const hasMessage = this.message !== this.code;
    return isKnown && (language !== 'en' || !hasMessage) ? localize(ERRORS, this.code, language, this.values) : this.message;
  }
}

// A server that requires a token gets it with every request; it is stored as long as the tab is open.
function withToken(options) {
  const token = sessionStorage.getItem('token');
  return token ? { ...options, headers: { ...options.headers, Authorization: `Bearer ${token}` } } : options;
}

function promptForToken() {
  const token = window.prompt(localize(TEXTS, 'token', detectLanguage()));
  if (token) sessionStorage.setItem('token', token.trim());
  return token;
}

async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(path, withToken(options));
  } catch {
    throw new ApiError('unreachable');
  }
  if (response.ok) return response;
  if (response.status === 401 && promptForToken()) return send(path, options);
  const { error } = await response.json().catch(() => ({ error: { code: 'internal' } }));
  throw new ApiError(error.code, error.message);
}

export async function request(path, body = undefined) {
  const options = body === undefined ? {} : {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
  };
  const response = await send(path, options);
  try {
    return await response.json();
  } catch {
    throw new ApiError('unreachable'); // the connection broke off
  }
}

// 16-bit weights and their shape.
export async function requestWeights(path) {
  const response = await send(path);
  const shape = response.headers.get('X-Shape').split(',').map(Number);
  return { shape, weights: new Uint16Array(await response.arrayBuffer()) };
}

// Only the latest call counts: while one runs, the last of the following waits and the others are dropped. So a
// dragged point never waits for a queue of old requests.
export function latestOnly(work) {
  let isRunning = false;
  let next = null;
  return async function call(...values) {
    if (isRunning) {
      next = values;
      return;
    }
    isRunning = true;
    try {
      await work(...values);
    } finally {
      isRunning = false;
      if (next) {
        const values = next;
        next = null;
        call(...values);
      }
    }
  };
}
