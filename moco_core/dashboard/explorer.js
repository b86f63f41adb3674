// The explorer: linked scatter plots of samples. Columns arrive as packs (see packs.py) from components of
// their own, so that a new colouring moves only the colours. This function runs again at each change of data
// or theme; everything it remembers hangs on its element.

export default function ({ data, parentElement, setStateValue }) {
  const app = (parentElement.explorer ??= new Explorer(parentElement));
  app.send = setStateValue;
  const { drawn_at: drawnAt, ...spec } = data;
  app.drawnAt = drawnAt;
  app.show(spec);
  return () => app.close();
}

class Explorer {
  constructor(parent) {
    this.root = element("div", "moco-explorer", parent);
    this.plots = element("div", "plots", this.root);
    this.side = element("div", "side", this.root);
    this.legend = element("div", "legend", this.side);
    this.controls = element("div", "controls", this.side);
    this.tip = element("div", "tip", this.root);
    this.panes = [];
    this.graph = new Graph(this);
    this.selected = null; // Uint8Array, one entry a sample, or null
    this.timer = ifMissing(() =>
      this.message("The picture can't be drawn: plotly.js did not load. Reload the page to try again."),
    );
    this.redraw = () => this.show(this.spec);
    for (const name of ["pointerenter", "pointermove"]) {
      this.root.addEventListener(name, (event) => this.follow(event), true);
    }
    this.root.addEventListener("pointerleave", () => this.leave());
    this.observer = new ResizeObserver(() => this.graph.fit());
    this.observer.observe(this.root);
  }

  close() {
    shelf.waiting.delete(this.redraw);
    this.observer.disconnect();
    clearTimeout(this.timer);
    this.stopped = true;
    this.graph.clear();
  }

  show(spec) {
    this.spec = spec;
    this.know(spec.samples);
    const drawable = globalThis.Plotly && spec.panes.every((pane) => findPack(pane.points) && findPack(pane.colour));
    if (drawable && this.samples) shelf.waiting.delete(this.redraw);
    else shelf.waiting.add(this.redraw);
    if (!drawable) return;
    this.theme = readTheme(this.root);
    const stamp = JSON.stringify([spec, this.theme]);
    if (stamp === this.stamp) {
      this.tell(); // the page ran again, the picture is the same
      return;
    }
    this.stamp = stamp;
    this.message("");
    this.root.style.setProperty("--height", `${spec.height}px`);
    this.root.style.setProperty("--panes", spec.panes.length);
    while (this.panes.length < spec.panes.length) this.panes.push(new Pane(this));
    while (this.panes.length > spec.panes.length) this.panes.pop().remove();
    const targets = spec.panes.map((pane, i) => this.panes[i].take(pane));
    this.drawLegend();
    this.drawControls();
    this.picture(targets).then(() => {
      this.root.dataset.colour = findPack(spec.panes[0].colour)?.meta.title ?? "";
      this.root.dataset.points = spec.panes.map((pane) => pane.points).join(" ");
      this.root.dataset.frame = spec.frame;
      this.tell();
    });
  }

  // Draws, and where points lie elsewhere now, moves them there.
  async picture(targets) {
    await this.graph.draw();
    if (targets.some((target) => target)) await this.graph.move(targets, TWEEN);
  }

  tell() {
    tell(this.drawnAt);
    this.drawnAt = "";
  }

  // What the browser says of a sample. It comes last, as no picture needs it; null until then.
  know(id) {
    if (this.samples?.id === id) return;
    if (this.samples) this.under = null; // a point that stood for another sample
    this.samples = findPack(id);
    this.selected = null;
    this.sheet = this.samples?.meta.side ? loadSheet(this.samples) : null;
    this.called = null;
    if (this.samples && this.under) this.hover(...this.under);
  }

  message(text) {
    this.note ??= element("p", "note", this.root);
    this.note.textContent = text;
    this.note.hidden = !text;
  }

  select(rows, add) {
    if (!this.samples) return;
    const size = this.samples.arrays.labels.length;
    const next = add && this.selected ? this.selected.slice() : new Uint8Array(size);
    for (const row of rows) next[row] = 1;
    this.selected = next.some((value) => value) ? next : null;
    this.graph.draw();
    this.drawLegend();
    this.send("selected", { images: this.spec.images, bits: this.selected ? bits(this.selected) : "" });
  }

  pick(row) {
    this.send("picked", { images: this.spec.images, row });
  }

  // What lies under the pointer: shown in the tip, and ringed in every other pane.
  hover(pane, point) {
    this.under = [pane, point];
    if (!this.samples) return;
    const row = pane.points.arrays.samples[point];
    for (const other of this.panes) other.point(other === pane ? -1 : row);
    const { labels: codes, ids } = this.samples.arrays;
    const { names } = this.samples.meta;
    this.tip.replaceChildren();
    if (row >= 0) {
      if (this.sheet) this.thumbnail(row);
      const called = this.calledOf(row);
      if (called) element("b", "", this.tip, called);
      if (!called || codes[row] >= 0) element(called ? "span" : "b", "", this.tip, names[codes[row]] ?? "unlabelled");
      element("span", "", this.tip, `#${ids[row]}`);
    } else {
      element("b", "", this.tip, KINDS[pane.points.arrays.kinds[point]]);
    }
    const kind = pane.points.arrays.kinds[point];
    if (row >= 0 && pane.segments.length > 1) element("span", "", this.tip, KINDS[kind]);
    const colour = pane.colour;
    if (colour.meta.title !== "class" || row < 0) {
      const value = colour.arrays.values[point];
      const text = colour.meta.names ? (colour.meta.names[value] ?? "unlabelled") : number(value);
      element("span", "", this.tip, `${colour.meta.title}: ${text}`);
    }
    for (const { name, array, names: labels } of colour.meta.details) {
      const value = colour.arrays[array][point];
      const text = labels ? labels[value] : Number.isNaN(value) ? undefined : number(value);
      if (text !== undefined) element("span", "", this.tip, `${name}: ${text}`);
    }
    this.place();
  }

  // What the sample is called; its names come as lines of text.
  calledOf(row) {
    const { called } = this.samples.arrays;
    if (!called.length) return "";
    this.called ??= new TextDecoder().decode(called).split("\n");
    return this.called[row];
  }

  thumbnail(row) {
    const { side, across } = this.samples.meta;
    const canvas = element("canvas", "", this.tip);
    canvas.width = canvas.height = 96;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    const draw = () => {
      const x = (row % across) * side;
      const y = Math.floor(row / across) * side;
      context.drawImage(this.sheet, x, y, side, side, 0, 0, 96, 96);
    };
    if (this.sheet.complete) draw();
    else this.sheet.addEventListener("load", draw, { once: true });
  }

  place() {
    const box = this.root.getBoundingClientRect();
    const { clientX, clientY } = this.pointer ?? { clientX: box.left, clientY: box.top };
    this.tip.style.display = "flex";
    const left = clientX - box.left + 16;
    const flip = left + this.tip.offsetWidth > box.width;
    this.tip.style.left = `${flip ? left - this.tip.offsetWidth - 32 : left}px`;
    const top = Math.min(clientY - box.top + 8, box.height - this.tip.offsetHeight - 4);
    this.tip.style.top = `${Math.max(0, top)}px`;
  }

  follow(event) {
    this.pointer = event;
    this.graph.arm();
  }

  leave() {
    this.under = null;
    this.tip.style.display = "none";
    for (const pane of this.panes) pane.point(-1);
  }

  drawLegend() {
    const { colour } = this.panes[0];
    this.legend.replaceChildren();
    element("div", "title", this.legend, colour.meta.title);
    if (colour.meta.names) this.classLegend(colour);
    else this.scaleLegend(colour);
    const pane = this.panes[0];
    if (pane.segments.length > 1) {
      for (const { kind } of pane.segments) {
        const line = element("div", "kind", this.legend);
        line.append(swatch(KIND_SYMBOLS[kind], this.theme.text), KINDS[kind] + (kind === 2 ? " (fades with age)" : ""));
      }
    }
  }

  // A click on a class selects it, as a lasso around all its samples would; with shift it is added.
  classLegend(colour) {
    const { values } = colour.arrays;
    const { samples } = this.panes[0].points.arrays;
    const members = new Map();
    for (let i = 0; i < values.length; i++) {
      if (samples[i] < 0) continue;
      if (!members.has(values[i])) members.set(values[i], []);
      members.get(values[i]).push(samples[i]);
    }
    for (const code of [...members.keys()].sort((a, b) => a - b)) {
      const rows = members.get(code);
      const known = code < colour.meta.names.length;
      const button = element("button", "", this.legend);
      const symbol = (this.panes[0].shaped() && colour.meta.symbols?.[code]) || "circle";
      button.append(swatch(symbol, known ? colour.meta.colours[code] : colour.meta.unknown));
      const name = known ? colour.meta.names[code] : "unlabelled";
      element("span", "name", button, name);
      element("span", "count", button, new Set(rows).size.toLocaleString("en"));
      button.title = `Select these samples: ${name}`; // of a long name the legend shows three lines
      button.classList.toggle("off", Boolean(this.selected) && !rows.some((row) => this.selected[row]));
      button.addEventListener("click", (event) => {
        const all = this.selected && rows.every((row) => this.selected[row]);
        if (all && !event.shiftKey) this.select([], false);
        else this.select(rows, event.shiftKey);
      });
    }
  }

  scaleLegend(colour) {
    const { low, high, stops } = colour.meta;
    const bar = element("div", "bar", this.legend);
    bar.style.background = `linear-gradient(to right, ${stops.map(([at, c]) => `${c} ${100 * at}%`).join(", ")})`;
    const ends = element("div", "ends", this.legend);
    element("span", "", ends, number(low));
    element("span", "", ends, number(high));
  }

  drawControls() {
    const { frames } = this.panes[0].points.meta;
    this.controls.replaceChildren();
    if (frames.length < 2) return;
    const play = element("button", "play", this.controls, this.playing ? "❚❚ Pause" : "▶ Play");
    play.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    this.clock = element("span", "clock", this.controls, frames[this.panes[0].shownFrame] ?? "");
  }

  async play() {
    const { shownFrame: shown, points } = this.panes[0];
    const last = points.meta.frames.length - 1;
    let frame = shown >= last ? 0 : shown;
    this.playing = true;
    this.drawControls();
    await this.go(frame, 0);
    while (this.playing && !this.stopped && frame < last) {
      frame += 1;
      await this.go(frame, 1.6 * TWEEN);
      if (this.clock) this.clock.textContent = points.meta.frames[frame];
      await new Promise((done) => setTimeout(done, 250));
    }
    if (this.playing && !this.stopped) this.pause();
  }

  go(frame, duration) {
    return this.graph.move(this.panes.map((pane) => pane.turn(frame)), duration);
  }

  pause() {
    this.playing = false;
    this.drawControls();
    this.send("frame", { points: this.spec.panes[0].points, frame: this.panes[0].shownFrame });
  }
}

function findPack(id) {
  for (const pack of shelf.packs.values()) if (pack.id === id) return pack;
  return null;
}

function swatch(symbol, colour) {
  const node = document.createElement("i");
  node.className = `swatch ${symbol}`;
  node.style.color = colour;
  return node;
}

function loadSheet({ arrays, meta }) {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([arrays.sheet], { type: meta.mime }));
  image.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  image.src = url;
  return image;
}

// One bit a sample, lowest bit first, as base64.
function bits(flags) {
  const bytes = new Uint8Array(Math.ceil(flags.length / 8));
  flags.forEach((flag, i) => flag && (bytes[i >> 3] |= 1 << (i & 7)));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function number(value) {
  if (Number.isNaN(value)) return "–";
  return (Number.isInteger(value) ? String(value) : value.toPrecision(3)).replace("-", "−");
}
