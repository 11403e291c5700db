// Weights that travel in the page: one block a (layer, head), unpacked when it is looked at and not before.

const unpacked = new Map();

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let place = 0; place < raw.length; place += 1) bytes[place] = raw.charCodeAt(place);
  return bytes;
}

async function inflated(id) {
  const packed = new Blob([bytesOf(document.getElementById(id).textContent.trim())]);
  const stream = packed.stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).arrayBuffer();
}

// The bytes of the block with this id, as a promise; asked for twice, they are unpacked once.
export function block(id) {
  if (!unpacked.has(id)) unpacked.set(id, inflated(id));
  return unpacked.get(id);
}

// Weights of a layer and head, as 16-bit numbers: 65535 is 1.
export async function weightsOf(layer, head) {
  return new Uint16Array(await block(`w-${layer}-${head}`));
}

// What the page was made from.
export function dataOf(id = 'data') {
  return JSON.parse(document.getElementById(id).textContent);
}

// The average of several blocks of the same size.
export function averageOf(blocks) {
  if (blocks.length === 1) return blocks[0];
  const sum = new Float64Array(blocks[0].length);
  for (const one of blocks) for (let place = 0; place < sum.length; place += 1) sum[place] += one[place];
  return Uint16Array.from(sum, (value) => Math.round(value / blocks.length));
}

// Numbers of any kind, as 32-bit floats.
export async function floatsOf(id) {
  return new Float32Array(await block(id));
}
