// Binary blocks embedded in the page, such as one matrix of weights per (layer, head). A block is unpacked on first use.

const blocks = new Map();

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflate(id) {
  const packed = new Blob([bytesOf(document.getElementById(id).textContent.trim())]);
  const stream = packed.stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).arrayBuffer();
}

// A promise of the bytes of the block with this id. Each block is unpacked only once.
export function block(id) {
  if (!blocks.has(id)) blocks.set(id, inflate(id));
  return blocks.get(id);
}

// The weights of a layer and head as 16-bit numbers; 65535 stands for 1.
export async function weightsOf(layer, head) {
  return new Uint16Array(await block(`w-${layer}-${head}`));
}

// The JSON data of the page.
export function dataOf(id = 'data') {
  return JSON.parse(document.getElementById(id).textContent);
}

// The mean of several blocks of the same size.
export function averageOf(matrices) {
  if (matrices.length === 1) return matrices[0];
  const sum = new Float64Array(matrices[0].length);
  for (const matrix of matrices) for (let i = 0; i < sum.length; i += 1) sum[i] += matrix[i];
  return Uint16Array.from(sum, (value) => Math.round(value / matrices.length));
}

// The numbers of a block of 32-bit floats.
export async function floatsOf(id) {
  return new Float32Array(await block(id));
}
