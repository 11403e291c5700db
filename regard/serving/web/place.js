// Where the reader is, kept in the address: #view?name=value. A link to it opens the same again.

export function placeNow() {
  const [view, rest = ''] = location.hash.slice(1).split(/\?(.*)/s);
  return { view, state: Object.fromEntries(new URLSearchParams(rest)) };
}

export function hashOf(view, state = {}) {
  const kept = Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const rest = new URLSearchParams(kept).toString();
  return `#${view}${rest ? `?${rest}` : ''}`;
}

// The state changed, but the reader has not gone elsewhere: no new entry in the history.
export function keep(view, state) {
  history.replaceState(null, '', hashOf(view, state));
}
