// Sentences by language. A table is { en: { key: 'text {name}' }, zh: { ... } }.

const STORED = 'regard-language';
const LANGUAGES = ['en', 'zh'];

function known(text) {
  const short = (text || '').slice(0, 2).toLowerCase();
  return LANGUAGES.includes(short) ? short : null;
}

function remembered() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null; // a page from a file, in a browser that keeps nothing for it
  }
}

// The language of the reader: ?lang=, what was chosen before, what the page was made for, the browser's.
export function languageOf(made = null) {
  const asked = new URLSearchParams(location.search).get('lang');
  return known(asked) || known(remembered()) || known(made) || known(navigator.language) || 'en';
}

// From now on, and the next time, this language.
export function chooseLanguage(language) {
  document.documentElement.lang = language === 'zh' ? 'zh-Hans' : language;
  try {
    localStorage.setItem(STORED, language);
  } catch {
    // then only this once
  }
}

// A sentence with its {names} filled in; English where a language has none.
export function say(table, key, language, values = {}) {
  const text = (table[language] || {})[key] ?? table.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

// A button that changes to the other language.
export function languageButton(language, change) {
  const other = language === 'zh' ? 'en' : 'zh';
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'quiet language';
  button.lang = other === 'zh' ? 'zh-Hans' : 'en';
  button.textContent = other === 'zh' ? '中文' : 'English';
  button.addEventListener('click', () => {
    chooseLanguage(other);
    change(other);
  });
  return button;
}

// A weight in so many digits as one reads.
export function share(weight) {
  if (weight === 0) return '0';
  if (weight < 0.001) return '<0.001';
  return weight.toFixed(weight < 0.0995 ? 3 : 2);
}
