// Questions to the server. What goes wrong becomes a Trouble, which says it in the reader's language.

import { detectLanguage, localize } from '../web/language.js';
import { TEXTS, TROUBLES } from './texts.js';

export class Trouble extends Error {
  constructor(code, message = '', values = {}) {
    super(message || code);
    this.code = code;
    this.values = values;
  }

  // The server explains itself in English; for a code that we know there is a sentence in every language.
  in(language) {
    const known = code => (TROUBLES[language] || {})[code];
    if (language !== 'en' && known(this.code)) return localize(TROUBLES, this.code, language, this.values);
    return this.message === this.code ? localize(TROUBLES, this.code, language, this.values) : this.message;
  }
}

// A server that asks for a token gets it with every question; it is kept as long as the tab is open.
function withToken(options) {
  const token = sessionStorage.getItem('token');
  return token ? { ...options, headers: { ...options.headers, Authorization: `Bearer ${token}` } } : options;
}

function askForToken() {
  const token = window.prompt(localize(TEXTS, 'token', detectLanguage()));
  if (token) sessionStorage.setItem('token', token.trim());
  return token;
}

async function fetched(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, withToken(options));
  } catch {
    throw new Trouble('gone');
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && askForToken()) return fetched(path, options);
  const { error } = await answer.json().catch(() => ({ error: { code: 'internal' } }));
  throw new Trouble(error.code, error.message);
}

export async function ask(path, body = undefined) {
  const sent = body === undefined ? {} : {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
  };
  const answer = await fetched(path, sent);
  try {
    return await answer.json();
  } catch {
    throw new Trouble('gone'); // it left in the middle of a sentence
  }
}

// 16-bit numbers, and their shape.
export async function askBlock(path) {
  const answer = await fetched(path);
  const shape = answer.headers.get('X-Shape').split(',').map(Number);
  return { shape, block: new Uint16Array(await answer.arrayBuffer()) };
}

// Only the newest question counts: while one is under way, the last of those that came since waits, the others are
// dropped. So a dragged point never lags behind a line of old questions.
export function newest(work) {
  let busy = false;
  let next = null;
  return async function go(...wanted) {
    if (busy) {
      next = wanted;
      return;
    }
    busy = true;
    try {
      await work(...wanted);
    } finally {
      busy = false;
      if (next) {
        const later = next;
        next = null;
        go(...later);
      }
    }
  };
}
