// Colors of weights: one hue whose lightness decreases evenly with the weight (increases on a dark page), so that the
// order survives color blindness and grayscale printing. Computed in OKLCH (Ottosson 2020).

const STEPS = 256;
const scheme = window.matchMedia('(prefers-color-scheme: dark)');

export function isDark() {
  return scheme.matches;
}

// Call `repaint` whenever the color scheme changes between dark and light.
export function onScheme(repaint) {
  scheme.addEventListener('change', repaint);
}

function fromOklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map(encodeGamma);
}

// A linear channel as sRGB, 0..255.
function encodeGamma(linear) {
  const x = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055));
}

function scaleOf(dark) {
  return Array.from({ length: STEPS }, (_, step) => {
    const t = step / (STEPS - 1);
    const chroma = 0.145 * Math.sin(Math.PI * Math.min(1, 0.06 + 0.78 * t));
    return dark
      ? fromOklch(0.235 + 0.715 * t, 0.007 + chroma * Math.min(1, 3 * t) * (1 - 0.35 * t), 260 - 40 * t)
      : fromOklch(0.985 - 0.705 * t, chroma * (0.12 + 0.88 * Math.min(1, 2.5 * t)), 238 + 28 * t);
  });
}

const scales = { light: scaleOf(false), dark: scaleOf(true) };

function stepOf(t) {
  return Math.round(Math.min(1, Math.max(0, t || 0)) * (STEPS - 1));
}

// [red, green, blue] of a number from 0 (background) to 1 (full color).
export function shade(t, dark = isDark()) {
  return scales[dark ? 'dark' : 'light'][stepOf(t)];
}

// The same as a CSS color.
export function css(t, dark = isDark()) {
  return `rgb(${shade(t, dark).join(' ')})`;
}

// The text color with the better contrast on a background color.
export function inkFor(color) {
  const [red, green, blue] = color.map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? '#16191d' : '#ffffff';
}

export function inkOn(t, dark = isDark()) {
  return inkFor(shade(t, dark));
}

// 256 shades as 32-bit pixels of an ImageData; a gamma below 1 emphasizes small weights.
export function palette(gamma = 1, dark = isDark()) {
  const colors = new Uint32Array(STEPS);
  const bytes = new Uint8ClampedArray(colors.buffer);
  for (let step = 0; step < STEPS; step += 1) {
    bytes.set([...shade((step / (STEPS - 1)) ** gamma, dark), 255], 4 * step);
  }
  return colors;
}

// A diverging scale from -1 to 1: blue for positive, rust for negative numbers.
export function signed(t, dark = isDark()) {
  if (t >= 0) return shade(0.8 * t, dark);
  const x = Math.min(1, -t);
  return dark ? fromOklch(0.235 + 0.5 * x, 0.008 + 0.13 * x, 45) : fromOklch(0.985 - 0.4 * x, 0.15 * x, 45);
}
