// One pane of an explorer: the points of one picture, in the colours of one column.

const SVG_LIMIT = 5000; // points up to which panes are drawn as SVG, and the most without WebGL
const SHAPE_LIMIT = 12000; // points up to which classes have shapes
const ROUNDS = 3; // times that each colour of a WebGL picture is drawn, so that none lies above all others
const DIM = 0.12; // opacity of what is not selected
const KINDS = ["query", "key", "queue key"];
const KIND_SYMBOLS = ["circle", "diamond-open", "x"];
const MARK = "#e5383b"; // rings around what was searched for or clicked
const GRID = "rgba(128,128,128,0.18)";
const INSET = { left: 31, right: 5, top: 29, bottom: 35 }; // pixels from a pane's frame to its points

class Pane {
  constructor(app) {
    this.app = app;
    this.number = app.panes.length ? app.panes.length + 1 : ""; // as in the names of its axes
    this.box = element("div", "pane", app.plots);
    this.heading = element("div", "heading", this.box);
    this.frame = element("div", "frame", this.box);
    this.sentence = element("div", "sentence", this.box);
    this.ring = element("i", "ring", app.plots);
  }

  remove() {
    this.box.remove();
    this.ring.remove();
  }

  // Takes what is to be shown; returns the positions to which points that are there already shall move, or null.
  take(spec) {
    const points = findPack(spec.points);
    const before = this.points;
    this.colour = findPack(spec.colour);
    this.heading.textContent = spec.title;
    this.heading.hidden = !spec.title;
    const frame = Math.min(this.app.spec.frame, points.meta.frames.length - 1);
    if (before?.id === points.id) {
      this.groups = this.grouped();
      return this.app.playing || frame === this.shownFrame ? null : this.turn(frame);
    }
    this.points = points;
    this.segments = segments(points.arrays.kinds);
    this.flat = !this.solid && (this.count <= SVG_LIMIT || !hasWebGL());
    this.step = this.flat ? Math.ceil(this.count / SVG_LIMIT) : 1;
    this.sentence.textContent = this.lack();
    this.groups = this.grouped();
    const target = this.turn(frame);
    if (before && before.meta.dim === points.meta.dim && sameSamples(before, points)) return target;
    this.positions = target;
    return null;
  }

  // Has a frame of the animation shown; returns its positions.
  turn(frame) {
    const size = this.points.meta.dim * this.count;
    this.shownFrame = frame;
    return this.points.arrays.frames.slice(frame * size, (frame + 1) * size);
  }

  get count() {
    return this.points.arrays.samples.length;
  }

  get solid() {
    return this.points.meta.dim === 3;
  }

  get curves() {
    return this.groups.length + 2; // two of marks
  }

  // What this browser can't show, in a sentence.
  lack() {
    if (this.step > 1) {
      return `This browser has no WebGL: one in ${this.step} of ${this.count.toLocaleString("en")} points is drawn.`;
    }
    return this.solid && !hasWebGL() ? "This browser has no WebGL, which a 3-D picture needs; 2-D works without." : "";
  }

  // The points of each trace, in the order in which they are drawn: all, or where the browser has no WebGL a few
  // thousand, evenly chosen. plotly.js reads a colour a point one by one, a trace's colour once.
  grouped() {
    const { values } = this.colour.arrays;
    const coloured = this.colour.meta.names && !this.flat && !this.solid && !this.points.arrays.fade && !this.shaped();
    const table = colourTable(this.colour.meta);
    return this.segments.flatMap(({ kind, start, end }) => {
      if (!coloured) {
        const length = Math.ceil((end - start) / this.step);
        return [{ kind, rows: Array.from({ length }, (_, i) => start + i * this.step) }];
      }
      const groups = Array.from({ length: ROUNDS }, () => new Map());
      for (let i = start; i < end; i++) {
        const round = groups[Math.floor((ROUNDS * (i - start)) / (end - start))];
        const colour = table(values[i]);
        if (!round.has(colour)) round.set(colour, []);
        round.get(colour).push(i);
      }
      return groups.flatMap((round) => [...round].map(([colour, rows]) => ({ kind, rows, colour })));
    });
  }

  axis(axis) {
    return this.positions.subarray(axis * this.count, (axis + 1) * this.count);
  }

  traces() {
    const { selected } = this.app;
    const type = this.solid ? "scatter3d" : this.flat ? "scatter" : "scattergl";
    const written = type === "scattergl" ? channels : withAlpha;
    const paint = this.groups[0].colour ? null : this.paint(this.solid ? selected : null, written);
    const marks = this.marks();
    return this.places(marks).map((place, i) => ({
      ...place,
      ...this.named(),
      showlegend: false,
      ...(i < this.groups.length
        ? {
            type,
            mode: "markers",
            hoverinfo: "none",
            marker: {
              color: this.groups[i].colour ?? this.groups[i].rows.map((row) => paint[row]),
              size: this.size(this.groups[i].kind),
              symbol: this.symbols(this.groups[i]),
              ...(!this.solid && { line: { width: 0 } }),
            },
            ...(!this.solid && {
              selectedpoints: selected ? this.chosen(this.groups[i]) : null,
              unselected: { marker: { opacity: DIM } },
              selected: { marker: { opacity: 1 } },
            }),
          }
        : { type: this.solid ? "scatter3d" : "scatter", hoverinfo: "skip", ...marks[i - this.groups.length].style }),
    }));
  }

  // Where the points of each trace lie: x, y and, in 3-D, z.
  places(marks = this.marks()) {
    const names = ["x", "y", "z"].slice(0, this.points.meta.dim);
    const of = (take) => Object.fromEntries(names.map((name, axis) => [name, take(this.axis(axis))]));
    return [
      ...this.groups.map(({ rows }) => of((values) => Float32Array.from(rows, (row) => values[row]))),
      ...marks.map(({ points }) => of((values) => points.map((point) => (point < 0 ? null : values[point])))),
    ];
  }

  // Which axes are this pane's.
  named() {
    return this.solid ? { scene: `scene${this.number}` } : { xaxis: `x${this.number}`, yaxis: `y${this.number}` };
  }

  // One colour a point. The queue fades with age, and in 3-D so does what is not selected: there by mixing
  // with the background, because WebGL adds up the light of see-through points. `written` makes of a colour and its
  // opacity what plotly.js is given.
  paint(selected, written) {
    const { values, fade } = { ...this.colour.arrays, fade: this.points.arrays.fade };
    const { samples } = this.points.arrays;
    const table = colourTable(this.colour.meta);
    const fog = this.solid ? hex(this.app.theme.background) : null;
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
    const size = this.solid ? 0.6 * base : base;
    return kind === 2 ? 0.8 * size : size;
  }

  // Whether classes have shapes. WebGL draws all points once for each shape, and small ones look alike.
  shaped() {
    return this.segments.length === 1 && this.count < SHAPE_LIMIT;
  }

  symbols({ kind, rows }) {
    if (this.segments.length > 1) return KIND_SYMBOLS[kind];
    const { symbols } = this.colour.meta;
    if (!this.shaped() || !symbols || symbols.every((symbol) => symbol === symbols[0])) return "circle";
    return rows.map((row) => symbols[this.colour.arrays.values[row]] ?? "circle");
  }

  chosen({ rows }) {
    const { samples } = this.points.arrays;
    const { selected } = this.app;
    return rows.flatMap((row, i) => (samples[row] >= 0 && selected[samples[row]] ? [i] : []));
  }

  // Lines to neighbours and rings around marked samples: points (−1 ends a line) and how they look.
  marks() {
    const { rings, links } = this.app.spec;
    const place = this.placeOf();
    const ends = links.map((pair) => pair.map((row) => place.get(row)));
    const there = (points) => points.every((point) => point !== undefined);
    const ring = { symbol: "circle-open", size: this.solid ? 9 : 14, color: MARK, line: { width: 2, color: MARK } };
    return [
      {
        points: ends.filter(there).flatMap((pair) => [...pair, -1]),
        style: { mode: "lines", line: { color: MARK, width: 1.5 }, opacity: 0.7 },
      },
      {
        points: rings.map((row) => place.get(row)).filter((point) => point !== undefined),
        style: { mode: "markers", marker: ring },
      },
    ];
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

  // Rings a sample that is pointed at in another pane; none for −1. Not drawn by plotly.js, which would draw all anew.
  point(row) {
    const point = row < 0 || this.solid ? undefined : this.placeOf().get(row);
    const full = point === undefined ? null : this.app.graph.plot._fullLayout;
    const at = ["x", "y"].map((name, i) => {
      const axis = full?.[`${name}axis${this.number}`];
      const pixel = axis?.l2p(this.axis(i)[point]);
      return pixel >= 0 && pixel <= axis._length ? axis._offset + pixel : null; // none outside of a zoomed picture
    });
    const inside = at.every((pixel) => pixel !== null);
    this.ring.style.display = inside ? "block" : "none";
    if (inside) [this.ring.style.left, this.ring.style.top] = at.map((pixel) => `${pixel}px`);
  }

  // Index among all points of one that plotly.js names by its trace in this pane and its place there; −1 for marks.
  pointOf(curve, place) {
    return this.groups[curve]?.rows[place] ?? -1;
  }

  axes() {
    const { ranges, camera } = this.left();
    const axis = (i) => ({
      title: { text: this.points.meta.axes[i], font: { size: 12 }, ...(!this.solid && { standoff: 8 }) },
      range: !this.solid && ranges ? ranges[i].slice() : this.range(i),
      showticklabels: false,
      zeroline: false,
      gridcolor: GRID,
      ...(this.solid && { backgroundcolor: "rgba(0,0,0,0)", showspikes: false }),
    });
    const { x, y } = this.domain();
    const n = this.number;
    return this.solid
      ? {
          [`scene${n}`]: {
            domain: { x, y },
            xaxis: axis(0),
            yaxis: axis(1),
            zaxis: axis(2),
            aspectmode: "data",
            ...(camera && { camera }),
          },
        }
      : {
          [`xaxis${n}`]: { ...axis(0), domain: x, anchor: `y${n}` },
          [`yaxis${n}`]: { ...axis(1), domain: y, anchor: `x${n}`, scaleanchor: `x${n}` },
        };
  }

  // The place of the points as shares of the figure, which lies over all frames.
  domain() {
    const { offsetWidth: width, offsetHeight: height } = this.app.plots;
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = this.frame;
    const share = (low, high, all) => [low / all, high / all].map((at) => Math.min(1, Math.max(0, at)));
    return {
      x: share(offsetLeft + INSET.left, offsetLeft + offsetWidth - INSET.right, width),
      y: share(height - offsetTop - offsetHeight + INSET.bottom, height - offsetTop - INSET.top, height),
    };
  }

  // The heading as a note within the figure.
  title(width, height) {
    if (this.heading.hidden) return [];
    const { offsetLeft, offsetTop, offsetWidth } = this.frame;
    const place = { xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom" };
    const at = { x: offsetLeft / width, y: 1 - offsetTop / height, width: offsetWidth, align: "left" };
    return [{ text: `<b>${escapeHtml(this.heading.textContent)}</b>`, showarrow: false, ...place, ...at }];
  }

  // Zoom and camera as they were left, as long as the view is the same. Plotly's own memory (uirevision) loses
  // both: the camera with a new layout, the ranges because equal scales change them.
  left() {
    return this.kept?.view === this.app.spec.view ? this.kept : {};
  }

  keep(change, layout) {
    const n = this.number;
    const touched = (name) => Object.keys(change).some((key) => key.startsWith(name));
    const kept = { ...this.left(), view: this.app.spec.view };
    if (touched(`scene${n}.camera`)) {
      this.kept = { ...kept, camera: change[`scene${n}.camera`] ?? layout[`scene${n}`].camera };
    }
    const names = [`xaxis${n}`, `yaxis${n}`];
    if (!names.some((name) => touched(`${name}.range`) || touched(`${name}.autorange`))) return;
    this.point(-1);
    const ranges = names.map((name) => layout[name].range.slice());
    const home = ranges.flat().every((value, i) => Math.abs(value - this.home.flat()[i]) < 1e-6);
    this.kept = { ...kept, ranges: home ? undefined : ranges };
  }

  // Remembers where the axes begin and end when nobody has zoomed.
  settle(layout) {
    if (this.solid || this.left().ranges) return;
    this.home = ["xaxis", "yaxis"].map((name) => layout[name + this.number].range.slice());
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
