// Unpacks one message of columns (see packs.py) and puts it where explorers find it.

export default function ({ data, key }) {
  const shelf = (globalThis.mocoShelf ??= { packs: new Map(), waiting: new Set() });
  const pack = unpack(data);
  if (shelf.packs.get(key)?.id !== pack.id) {
    shelf.packs.set(key, pack);
    for (const redraw of [...shelf.waiting]) redraw();
  }
  return () => shelf.packs.delete(key);
}

const ARRAYS = {
  "<f4": Float32Array,
  "<i8": BigInt64Array,
  "<i4": Int32Array,
  "<u2": Uint16Array,
  "|u1": Uint8Array,
};

function unpack(bytes) {
  const buffer = bytes.slice().buffer; // typed arrays need an aligned start
  const length = new DataView(buffer).getUint32(0, true);
  const { id, meta, arrays } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const found = {};
  for (const [name, [type, shape, offset]] of Object.entries(arrays)) {
    const size = shape.reduce((product, side) => product * side, 1);
    found[name] = new ARRAYS[type](buffer, 4 + length + offset, size);
  }
  return { id, meta, arrays: found };
}
