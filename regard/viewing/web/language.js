// Texts by language. A table is { en: { key: 'text {name}' }, zh: { ... } }.

const STORED = 'regard-language';
const LANGUAGES = ['en', 'zh'];

function parseLanguage(text) {
  const short = (text || '').slice(0, 2).toLowerCase();
  return LANGUAGES.includes(short) ? short : null;
}

function storedLanguage() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null; // storage is not available to some pages opened from files
  }
}

function requestedLanguage() {
  return parseLanguage(new URLSearchParams(location.search).get('lang'));
}

// The language: ?lang=, the stored choice, the preferred language of the page, the language of the browser.
export function detectLanguage(preferred = null) {
  return requestedLanguage() || parseLanguage(storedLanguage()) || parseLanguage(preferred) || parseLanguage(navigator.language) || 'en';
}

// Set the language of the page, and store it if it was chosen, by ?lang= or the button.
export function setLanguage(language, chosen = language === requestedLanguage()) {
  document.documentElement.lang = language === 'zh' ? 'zh-Hans' : language;
  if (!chosen) return;
  try {
    localStorage.setItem(STORED, language);
  } catch {
    // not stored
  }
}

// A text with its {names} filled in; the English text where a language has none.
export function localize(table, key, language, values = {}) {
  const text = (table[language] || {})[key] ?? table.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (match, name) => (name in values ? String(values[name]) : match));
}

// A button that switches to the other language.
export function languageButton(language, change) {
  const other = language === 'zh' ? 'en' : 'zh';
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'quiet language';
  button.lang = other === 'zh' ? 'zh-Hans' : 'en';
  button.textContent = other === 'zh' ? '中文' : 'English';
  button.addEventListener('click', () => {
    setLanguage(other, true);
    change(other);
  });
  return button;
}

// A weight with two or three decimals.
export function formatWeight(weight) {
  if (weight === 0) return '0';
  if (weight < 0.001) return '<0.001';
  return weight.toFixed(weight < 0.0995 ? 3 : 2);
}
