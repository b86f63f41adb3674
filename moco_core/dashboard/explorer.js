// The explorer: linked scatter plots of samples. Columns arrive as packs (see packs.py) from components of
// their own, so that a new colouring moves only the colours. This function runs again at each change of data
// or theme; everything it remembers hangs on its element.

const SVG_LIMIT = 5000; // points up to which plots are drawn as SVG, and the most without WebGL
const SHAPE_LIMIT = 12000; // points up to which classes have shapes
const PATIENCE = 10000; // milliseconds to wait for plotly.js
const TWEEN = 700; // milliseconds of one step of an animation
const TWEEN_LIMIT = 20000; // points beyond which steps are not interpolated
const DIM = 0.12; // opacity of what is not selected
const KINDS = ["query", "key", "queue key"];
const KIND_SYMBOLS = ["circle", "diamond-open", "x"];
const MARK = "#e5383b"; // rings around what was searched for or clicked

export default function ({ data, parentElement, setStateValue }) {
  const app = (parentElement.explorer ??= new Explorer(parentElement));
  app.send = setStateValue;
  const { drawn_at: drawnAt, ...spec } = data;
  app.drawnAt = drawnAt;
  app.show(spec);
  return () => app.close();
}

const shelf = (globalThis.mocoShelf ??= { packs: new Map(), waiting: new Set() });

class Explorer {
  constructor(parent) {
    this.root = element("div", "moco-explorer", parent);
    this.plots = element("div", "plots", this.root);
    this.side = element("div", "side", this.root);
    this.legend = element("div", "legend", this.side);
    this.controls = element("div", "controls", this.side);
    this.tip = element("div", "tip", this.root);
    this.panes = [];
    this.selected = null; // Uint8Array, one entry a sample, or null
    this.started = performance.now();
    this.redraw = () => this.show(this.spec);
    this.root.addEventListener("pointermove", (event) => (this.pointer = event), true);
    this.root.addEventListener("pointerleave", () => this.leave());
    this.observer = new ResizeObserver(() => {
      for (const pane of this.panes) pane.fit();
    });
    this.observer.observe(this.root);
  }

  close() {
    shelf.waiting.delete(this.redraw);
    this.observer.disconnect();
    clearTimeout(this.timer);
    this.stopped = true;
    for (const pane of this.panes) pane.clear();
  }

  show(spec) {
    this.spec = spec;
    this.know(spec.samples);
    const drawable = globalThis.Plotly && spec.panes.every((pane) => findPack(pane.points) && findPack(pane.colour));
    if (drawable && this.samples) shelf.waiting.delete(this.redraw);
    else shelf.waiting.add(this.redraw);
    if (!drawable) {
      this.watch();
      return;
    }
    clearTimeout(this.timer);
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
    Promise.all(spec.panes.map((pane, i) => this.panes[i].show(pane))).then(() => {
      this.root.dataset.colour = findPack(spec.panes[0].colour)?.meta.title ?? "";
      this.root.dataset.points = spec.panes.map((pane) => pane.points).join(" ");
      this.root.dataset.frame = spec.frame;
      this.tell();
    });
    this.drawLegend();
    this.drawControls();
  }

  // The page may wait for its first picture before it sends what lies below. Once the browser has time: that it has
  // drawn the picture, and its controls, too.
  tell() {
    const { drawnAt } = this;
    this.drawnAt = "";
    if (!drawnAt) return;
    const post = () => fetch(new URL(drawnAt, document.baseURI), { method: "POST" }).catch(() => {});
    (globalThis.requestIdleCallback ?? setTimeout)(post);
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

  // Says so in words when plotly.js does not come.
  watch() {
    clearTimeout(this.timer);
    const left = this.started + PATIENCE - performance.now();
    if (globalThis.Plotly) return;
    if (left > 0) this.timer = setTimeout(() => this.watch(), left);
    else this.message("The picture can't be drawn: plotly.js did not load. Reload the page to try again.");
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
    for (const pane of this.panes) pane.draw();
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
      element("span", "", button, known ? colour.meta.names[code] : "unlabelled");
      element("span", "count", button, new Set(rows).size.toLocaleString("en"));
      button.title = "Select these samples";
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
    this.clock = element("span", "clock", this.controls, frames[this.panes[0].frame] ?? "");
  }

  async play() {
    const last = this.panes[0].points.meta.frames.length - 1;
    let frame = this.panes[0].frame >= last ? 0 : this.panes[0].frame;
    this.playing = true;
    this.drawControls();
    await Promise.all(this.panes.map((pane) => pane.go(frame, 0)));
    while (this.playing && !this.stopped && frame < last) {
      frame += 1;
      const next = frame;
      await Promise.all(this.panes.map((pane) => pane.go(next, 1.6 * TWEEN)));
      if (this.clock) this.clock.textContent = this.panes[0].points.meta.frames[next];
      await new Promise((done) => setTimeout(done, 250));
    }
    if (this.playing && !this.stopped) this.pause();
  }

  pause() {
    this.playing = false;
    this.drawControls();
    this.send("frame", { points: this.spec.panes[0].points, frame: this.panes[0].frame });
  }
}

class Pane {
  constructor(app) {
    this.app = app;
    this.box = element("div", "pane", app.plots);
    this.heading = element("div", "heading", this.box);
    this.plot = element("div", "plot", this.box);
    this.sentence = element("div", "sentence", this.box);
    this.drawn = false;
  }

  remove() {
    this.clear();
    this.box.remove();
  }

  clear() {
    if (globalThis.Plotly) Plotly.purge(this.plot);
    this.plot.emit = () => {}; // what plotly.js still has under way will tell nobody
  }

  async show(spec) {
    const points = findPack(spec.points);
    const before = this.points;
    this.spec = spec;
    this.colour = findPack(spec.colour);
    this.heading.textContent = spec.title;
    this.heading.hidden = !spec.title;
    this.cursor = -1;
    const target = Math.min(this.app.spec.frame, points.meta.frames.length - 1);
    if (before?.id === points.id) {
      await this.draw();
      if (!this.app.playing && target !== this.frame) await this.go(target, TWEEN);
      return;
    }
    const alike = before && before.meta.dim === points.meta.dim && sameSamples(before, points);
    const from = alike ? this.positions : null;
    this.points = points;
    this.frame = target;
    this.segments = segments(points.arrays.kinds);
    this.thin();
    this.positions = from ?? this.framePositions(target);
    await this.draw();
    if (from) await this.move(this.framePositions(target), TWEEN);
  }

  get count() {
    return this.points.arrays.samples.length;
  }

  framePositions(frame) {
    const { dim } = this.points.meta;
    const size = dim * this.count;
    return this.points.arrays.frames.slice(frame * size, (frame + 1) * size);
  }

  // Which points are drawn: all, or where the browser has no WebGL a few thousand, evenly chosen.
  thin() {
    const { dim } = this.points.meta;
    this.flat = dim === 2 && (this.count <= SVG_LIMIT || !hasWebGL());
    const step = this.flat ? Math.ceil(this.count / SVG_LIMIT) : 1;
    this.shown = this.segments.map(({ start, end }) => {
      if (step === 1) return null;
      const rows = [];
      for (let i = start; i < end; i += step) rows.push(i);
      return rows;
    });
    this.sentence.textContent =
      step > 1
        ? `This browser has no WebGL: one in ${step} of ${this.count.toLocaleString("en")} points is drawn.`
        : dim === 3 && !hasWebGL()
          ? "This browser has no WebGL, which a 3-D picture needs; 2-D works without."
          : "";
  }

  column(values, segment) {
    const { start, end } = this.segments[segment];
    const rows = this.shown[segment];
    return rows ? rows.map((i) => values[i]) : values.subarray ? values.subarray(start, end) : values.slice(start, end);
  }

  axis(axis) {
    return this.positions.subarray(axis * this.count, (axis + 1) * this.count);
  }

  coordinates() {
    const names = ["x", "y", "z"].slice(0, this.points.meta.dim);
    return names.map((name, axis) => [name, this.segments.map((_, i) => this.column(this.axis(axis), i))]);
  }

  async draw() {
    const { dim } = this.points.meta;
    if (dim === 3 && !hasWebGL()) return;
    const type = dim === 3 ? "scatter3d" : this.flat ? "scatter" : "scattergl";
    const columns = this.coordinates();
    const { selected, theme } = this.app;
    const paint = this.paint(dim === 3 ? selected : null, type === "scattergl" ? channels : withAlpha);
    const traces = this.segments.map(({ kind }, i) => ({
      type,
      mode: "markers",
      hoverinfo: "none",
      showlegend: false,
      ...Object.fromEntries(columns.map(([name, values]) => [name, values[i]])),
      marker: {
        color: this.column(paint, i),
        size: this.size(kind),
        symbol: this.symbols(kind, i),
        ...(dim === 2 && { line: { width: 0 } }),
      },
      ...(dim === 2 && {
        selectedpoints: selected ? this.chosen(i) : null,
        unselected: { marker: { opacity: DIM } },
        selected: { marker: { opacity: 1 } },
      }),
    }));
    this.space = this.measured();
    await Plotly.react(this.plot, [...traces, ...this.marks()], this.layout(theme), this.config());
    if (this.app.stopped) return;
    if (!this.drawn) this.listen();
    this.drawn = true;
    const { xaxis, yaxis } = this.plot._fullLayout;
    if (dim === 2 && !this.left().ranges) this.home = [xaxis.range.slice(), yaxis.range.slice()];
  }

  measured() {
    return `${this.plot.offsetWidth} ${this.plot.offsetHeight}`;
  }

  fit() {
    if (!this.drawn || !this.plot.offsetWidth || this.measured() === this.space) return;
    this.space = this.measured();
    Plotly.Plots.resize(this.plot);
  }

  // One colour a point. The queue fades with age, and in 3-D so does what is not selected: there by mixing
  // with the background, because WebGL adds up the light of see-through points. `written` makes of a colour and its
  // opacity what plotly.js is given.
  paint(selected, written) {
    const { values, fade } = { ...this.colour.arrays, fade: this.points.arrays.fade };
    const { samples } = this.points.arrays;
    const table = colourTable(this.colour.meta);
    const fog = this.points.meta.dim === 3 ? hex(this.app.theme.background) : null;
    const colours = new Array(values.length);
    const known = new Map();
    for (let i = 0; i < values.length; i++) {
      let alpha = fade ? fade[i] : 1;
      if (selected && !(samples[i] >= 0 && selected[samples[i]])) alpha *= DIM;
      const colour = table(values[i]);
      const name = alpha < 1 ? colour + alpha : colour;
      if (!known.has(name)) known.set(name, fog ? mix([[0, fog], [1, colour]], alpha) : written(colour, alpha));
      colours[i] = known.get(name);
    }
    return colours;
  }

  size(kind) {
    const base = this.count < 500 ? 9 : this.count < 3000 ? 7 : this.count < 12000 ? 5 : this.count < 40000 ? 3.5 : 2.5;
    const size = this.points.meta.dim === 3 ? 0.6 * base : base;
    return kind === 2 ? 0.8 * size : size;
  }

  // Whether classes have shapes. WebGL draws all points once for each shape, and small ones look alike.
  shaped() {
    return this.segments.length === 1 && this.count < SHAPE_LIMIT;
  }

  symbols(kind, segment) {
    if (this.segments.length > 1) return KIND_SYMBOLS[kind];
    const { symbols } = this.colour.meta;
    if (!this.shaped() || !symbols || symbols.every((symbol) => symbol === symbols[0])) return "circle";
    return Array.from(this.column(this.colour.arrays.values, segment), (code) => symbols[code] ?? "circle");
  }

  chosen(segment) {
    const samples = this.column(this.points.arrays.samples, segment);
    const rows = [];
    for (let i = 0; i < samples.length; i++) if (samples[i] >= 0 && this.app.selected[samples[i]]) rows.push(i);
    return rows;
  }

  // Rings around marked samples, lines to neighbours, and a ring that follows the pointer in the other pane.
  marks() {
    const { rings, links } = this.app.spec;
    const place = this.placeOf();
    const cursor = this.cursor >= 0 && place.has(this.cursor) ? [place.get(this.cursor)] : [];
    const ringed = rings.map((row) => place.get(row)).filter((point) => point !== undefined);
    const line = [];
    for (const pair of links) {
      const ends = pair.map((row) => place.get(row));
      if (ends.every((point) => point !== undefined)) line.push(...ends, -1);
    }
    const solid = this.points.meta.dim === 3;
    const ring = (size, color) => ({ symbol: "circle-open", size, color, line: { width: 2, color } });
    return [
      this.overlay(line, { mode: "lines", line: { color: MARK, width: 1.5 }, opacity: 0.7 }),
      this.overlay(ringed, { mode: "markers", marker: ring(solid ? 9 : 14, MARK) }),
      this.overlay(cursor, { mode: "markers", marker: ring(solid ? 12 : 18, this.app.theme.text) }),
    ];
  }

  overlay(points, style) {
    const at = (axis) => points.map((point) => (point < 0 ? null : this.axis(axis)[point]));
    const trace = { hoverinfo: "skip", showlegend: false, ...style };
    if (this.points.meta.dim === 3) return { type: "scatter3d", x: at(0), y: at(1), z: at(2), ...trace };
    return { type: "scatter", x: at(0), y: at(1), ...trace };
  }

  placeOf() {
    if (this.placed?.id !== this.points.id) {
      const map = new Map();
      const { samples } = this.points.arrays;
      for (let i = samples.length - 1; i >= 0; i--) if (samples[i] >= 0) map.set(samples[i], i);
      this.placed = { id: this.points.id, map };
    }
    return this.placed.map;
  }

  point(row) {
    if (row === this.cursor || !this.drawn) return;
    this.cursor = row;
    const marks = this.marks()[2];
    const { x, y, z } = marks;
    const change = z ? { x: [x], y: [y], z: [z] } : { x: [x], y: [y] };
    Plotly.restyle(this.plot, change, [this.segments.length + 2]);
  }

  layout(theme) {
    const { dim, axes } = this.points.meta;
    const { ranges, camera: eye } = this.left();
    const camera = eye ? { camera: eye } : {};
    const axis = (i) => ({
      title: { text: axes[i], font: { size: 12 }, ...(dim === 2 && { standoff: 8 }) },
      range: dim === 2 && ranges ? ranges[i].slice() : this.range(i),
      showticklabels: false,
      zeroline: false,
      gridcolor: theme.grid,
      ...(dim === 3 && { backgroundcolor: "rgba(0,0,0,0)", showspikes: false }),
    });
    const space =
      dim === 3
        ? { scene: { xaxis: axis(0), yaxis: axis(1), zaxis: axis(2), aspectmode: "data", ...camera } }
        : { xaxis: axis(0), yaxis: { ...axis(1), scaleanchor: "x" } };
    return {
      ...space,
      uirevision: this.app.spec.view,
      selectionrevision: Math.random(), // outlines never stay: what is selected is a set of samples
      selections: [],
      dragmode: dim === 3 ? "orbit" : "lasso",
      hovermode: "closest",
      hoverdistance: 12,
      margin: { l: 30, r: 4, t: 28, b: 34 },
      font: { color: theme.text, family: theme.font },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      newselection: { line: { color: theme.primary, width: 2, dash: "solid" } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.text, activecolor: theme.primary },
      showlegend: false,
    };
  }

  // Zoom and camera as they were left, as long as the view is the same. Plotly's own memory (uirevision) loses
  // both: the camera with a new layout, the ranges because equal scales change them.
  left() {
    return this.kept?.view === this.app.spec.view ? this.kept : {};
  }

  keepView(change) {
    const { layout } = this.plot;
    const touched = (name) => Object.keys(change).some((key) => key.startsWith(name));
    const kept = { ...this.left(), view: this.app.spec.view };
    if (touched("scene.camera")) this.kept = { ...kept, camera: change["scene.camera"] ?? layout.scene.camera };
    if (!touched("xaxis") && !touched("yaxis")) return;
    const ranges = [layout.xaxis.range.slice(), layout.yaxis.range.slice()];
    const home = ranges.flat().every((value, i) => Math.abs(value - this.home.flat()[i]) < 1e-6);
    this.kept = { ...kept, ranges: home ? undefined : ranges };
  }

  // The extent of all frames, so that an animation keeps its scale.
  range(axis) {
    const { dim } = this.points.meta;
    const { frames } = this.points.arrays;
    let [low, high] = [Infinity, -Infinity];
    for (let start = axis * this.count; start < frames.length; start += dim * this.count) {
      for (let i = start; i < start + this.count; i++) {
        if (frames[i] < low) low = frames[i];
        if (frames[i] > high) high = frames[i];
      }
    }
    const margin = 0.04 * (high - low) || 1;
    return [low - margin, high + margin];
  }

  config() {
    return {
      displaylogo: false,
      showSendToCloud: false, // plotly.js would offer to upload the picture
      plotlyServerURL: "",
      displayModeBar: true,
      responsive: false,
      ...(this.points.meta.dim === 2 && { plotGlPixelRatio: devicePixelRatio }), // not four pixels for one of the screen
      modeBarButtonsToRemove: ["toImage", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetCameraLastSave3d"],
      modeBarButtonsToAdd: [
        {
          name: "picture",
          title: "Download the picture (PNG)",
          icon: Plotly.Icons.camera,
          click: () => this.download(),
        },
      ],
    };
  }

  listen() {
    const { plot, app } = this;
    plot.on("plotly_hover", ({ points }) => {
      const point = this.pointOf(points[0]);
      if (point >= 0) app.hover(this, point);
    });
    plot.on("plotly_unhover", () => app.leave());
    plot.on("plotly_click", ({ points }) => {
      const point = this.pointOf(points[0]);
      const row = point >= 0 ? this.points.arrays.samples[point] : -1;
      if (row >= 0) app.pick(row);
    });
    plot.on("plotly_selected", (event) => {
      if (!event?.points) return; // our own clearing of outlines
      const rows = new Set();
      for (const hit of event.points) {
        const point = this.pointOf(hit);
        const row = point >= 0 ? this.points.arrays.samples[point] : -1;
        if (row >= 0) rows.add(row);
      }
      app.select(rows, Boolean(app.pointer?.shiftKey));
    });
    plot.on("plotly_relayout", (change) => this.keepView(change));
    plot.on("plotly_deselect", () => app.select([], false));
  }

  // Index among all points of what Plotly names by trace and place; −1 for marks.
  pointOf(hit) {
    const segment = this.segments[hit?.curveNumber];
    if (!segment) return -1;
    const place = hit.pointNumber ?? hit.pointIndex;
    return this.shown[hit.curveNumber]?.[place] ?? segment.start + place;
  }

  async go(frame, duration) {
    this.frame = frame;
    await this.move(this.framePositions(frame), duration);
  }

  async move(target, duration) {
    const from = this.positions;
    const ticket = (this.ticket = {});
    const start = performance.now();
    const quick = this.count > TWEEN_LIMIT || document.hidden || reducedMotion();
    while (!quick && duration > 0) {
      const t = Math.min(1, (performance.now() - start) / duration);
      if (t >= 1) break;
      const ease = t * t * (3 - 2 * t);
      this.positions = from.map((value, i) => value + ease * (target[i] - value));
      await this.restyle();
      await new Promise(requestAnimationFrame);
      if (this.ticket !== ticket) return;
    }
    this.positions = target;
    await this.restyle();
  }

  async restyle() {
    if (!this.drawn) return;
    const marks = this.marks();
    const change = Object.fromEntries(
      this.coordinates().map(([name, values]) => [name, [...values, ...marks.map((mark) => mark[name])]]),
    );
    await Plotly.restyle(this.plot, change);
  }

  // The picture as it stands, with a background and a legend of its own.
  download() {
    const { theme } = this.app;
    const { meta } = this.colour;
    const dim = this.points.meta.dim;
    const empty = dim === 3 ? { type: "scatter3d", x: [null], y: [null], z: [null] } : { type: "scatter", x: [null], y: [null] };
    const entry = (name, marker) => ({ ...empty, mode: "markers", name: escapeHtml(name), marker, showlegend: true });
    const present = new Set(this.colour.arrays.values);
    const keys = meta.names
      ? meta.names.flatMap((name, i) => (present.has(i) ? [entry(name, { color: meta.colours[i], size: 8 })] : []))
      : [
          {
            ...empty,
            mode: "markers",
            showlegend: false,
            marker: {
              color: [meta.low],
              cmin: meta.low,
              cmax: meta.high,
              colorscale: meta.stops,
              colorbar: { title: { text: escapeHtml(meta.title) }, thickness: 12 },
            },
          },
        ];
    const layout = {
      ...this.plot.layout,
      title: { text: escapeHtml(this.app.spec.caption), font: { size: 14 } },
      margin: { l: 30, r: 10, t: 50, b: 34 },
      paper_bgcolor: theme.background,
      showlegend: Boolean(meta.names),
      legend: { itemsizing: "constant" },
    };
    const { offsetWidth: width, offsetHeight: height } = this.plot;
    Plotly.downloadImage(
      { data: [...this.plot.data, ...keys], layout, config: {} },
      { format: "png", scale: 2, width: width + 160, height: height + 30, filename: this.app.spec.file },
    );
  }
}

function findPack(id) {
  for (const pack of shelf.packs.values()) if (pack.id === id) return pack;
  return null;
}

function element(tag, className, parent, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text; // never HTML: names come from outside
  parent.append(node);
  return node;
}

function swatch(symbol, colour) {
  const node = document.createElement("i");
  node.className = `swatch ${symbol}`;
  node.style.color = colour;
  return node;
}

// Runs of points of one kind; kinds come sorted.
function segments(kinds) {
  const found = [];
  for (let i = 0; i < kinds.length; i++) {
    if (!i || kinds[i] !== kinds[i - 1]) found.push({ kind: kinds[i], start: i, end: i });
    found.at(-1).end = i + 1;
  }
  return found;
}

function sameSamples(a, b) {
  const [first, second] = [a.arrays.samples, b.arrays.samples];
  return first.length === second.length && first.every((row, i) => row === second[i]);
}

// From a value to its colour: by class, or along a scale of 256 colours.
function colourTable({ names, colours, unknown, stops, low, high }) {
  if (names) return (code) => colours[code] ?? unknown;
  const table = Array.from({ length: 256 }, (_, i) => mix(stops, i / 255));
  const scale = 255 / (high - low || 1);
  return (value) =>
    Number.isNaN(value) ? unknown : table[Math.max(0, Math.min(255, Math.round((value - low) * scale)))];
}

function mix(stops, at) {
  const right = Math.max(1, stops.findIndex(([stop]) => stop >= at));
  const [[a, from], [b, to]] = [stops[right - 1], stops[right]];
  const share = b > a ? (at - a) / (b - a) : 0;
  const parts = [1, 3, 5].map((i) => {
    const [x, y] = [from, to].map((colour) => parseInt(colour.slice(i, i + 2), 16));
    return Math.round(x + share * (y - x)).toString(16).padStart(2, "0");
  });
  return `#${parts.join("")}`;
}

function withAlpha(colour, alpha) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return alpha < 1 ? `rgba(${r},${g},${b},${alpha.toFixed(3)})` : colour;
}

// Red, green, blue and opacity from 0 to 1: plotly.js would read the text anew for each point of a WebGL picture.
function channels(colour, alpha) {
  return [...[1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255), alpha];
}

// Any CSS colour as #rrggbb.
function hex(colour) {
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = colour;
  return context.fillStyle.startsWith("#") ? context.fillStyle : "#808080";
}

function loadSheet({ arrays, meta }) {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([arrays.sheet], { type: meta.mime }));
  image.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  image.src = url;
  return image;
}

function readTheme(node) {
  const style = getComputedStyle(node);
  const read = (name, otherwise) => style.getPropertyValue(`--st-${name}`).trim() || otherwise;
  return {
    text: read("text-color", "#333333"),
    background: read("background-color", "#ffffff"),
    primary: read("primary-color", "#2f5fc4"),
    grid: "rgba(128,128,128,0.18)",
    font: read("font", "sans-serif"),
  };
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

function escapeHtml(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

let webgl;
function hasWebGL() {
  if (webgl === undefined) {
    const canvas = document.createElement("canvas");
    const context = canvas.getContext("webgl");
    webgl = Boolean(context);
    context?.getExtension("WEBGL_lose_context")?.loseContext();
  }
  return webgl;
}

function reducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
