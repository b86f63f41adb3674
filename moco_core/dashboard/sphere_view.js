// Points on a unit sphere that can be turned. Python sends where they are now and then; between two such
// messages they glide, so that motion stays smooth however seldom Python speaks.

const HOME = { yaw: 0.6, pitch: 0.45, zoom: 1 };
const ZOOM = [0.6, 5];
const GLIDE = 400; // longest glide between two messages, ms
const AWAKE = 300; // how long frames go on after the last change, ms
const REACH = 6; // pixels around a point that still count as on it

const SHAPES = {
  // lift: how much nearer a mark counts when several lie at one place
  query: { radius: 9, lift: 0.1, path: disc, filled: true, legend: "query q" },
  key: { radius: 15, lift: 0.05, path: diamond, filled: false, legend: "key k" },
  queue: { radius: 5.5, lift: 0, path: triangle, filled: true, legend: "queue negatives (fade = older)" },
  sample: { radius: 4, lift: 0, path: disc, filled: true, legend: "" },
};

const cameras = new Map(); // by name: spheres that share a camera turn together
const views = new Map(); // by mount point

export default function ({ parentElement, data }) {
  if (!views.has(parentElement)) views.set(parentElement, new View(parentElement));
  views.get(parentElement).receive(data);
  return () => {
    views.get(parentElement)?.close();
    views.delete(parentElement);
  };
}

class View {
  constructor(root) {
    this.root = root.querySelector(".sphere");
    this.canvas = root.querySelector("canvas");
    this.tip = root.querySelector(".tip");
    this.legend = root.querySelector(".legend");
    this.paper = this.canvas.getContext("2d");
    this.pointers = new Map();
    this.frames = [];
    this.count = 0;
    this.hovered = null; // the id of a point
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!this.paper) {
      this.canvas.hidden = true;
      root.querySelector(".unavailable").hidden = false;
      return;
    }
    this.resizing = new ResizeObserver(() => this.wake());
    this.resizing.observe(this.canvas);
    for (const [event, act] of Object.entries({
      pointerdown: this.press,
      pointermove: this.move,
      pointerup: this.release,
      pointercancel: this.release,
      pointerleave: this.leave,
      wheel: this.wheel,
      keydown: this.type,
    }))
      this.canvas.addEventListener(event, act.bind(this), { passive: false });
  }

  close() {
    cancelAnimationFrame(this.request);
    this.resizing?.disconnect();
  }

  // ---- what Python says

  receive(data) {
    this.data = data;
    this.root.style.setProperty("--height", `${data.height}px`);
    this.canvas.setAttribute("aria-label", data.summary);
    this.write(data);
    if (!this.paper) return;

    const now = performance.now();
    const points = floats(data.points);
    const shown = this.ids && this.positions(now);
    const before = new Map(this.ids ? Array.from(this.ids, (id, row) => [id, row]) : []);
    this.target = points;
    this.origin = points.slice();
    this.ids = integers(data.ids);
    this.ids.forEach((id, row) => {
      if (before.has(id)) this.origin.set(shown.subarray(3 * before.get(id), 3 * before.get(id) + 3), 3 * row);
    });
    this.classes = integers(data.classes);
    this.kinds = integers(data.kinds);
    this.ages = data.ages ? integers(data.ages) : null;
    this.glide = this.still || !shown ? 0 : Math.min(now - this.received, GLIDE);
    this.received = now;
    const style = getComputedStyle(this.root);
    this.ink = style.getPropertyValue("--st-text-color").trim() || "#31333f";
    this.ground = style.getPropertyValue("--st-background-color").trim() || "#ffffff";
    this.font = style.getPropertyValue("--st-font").trim() || "sans-serif";
    if (!cameras.has(data.camera)) cameras.set(data.camera, { ...HOME });
    this.camera = cameras.get(data.camera);
    this.wake();
  }

  write(data) {
    const kinds = data.kind_names.filter((kind, index) => SHAPES[kind].legend && integers(data.kinds).includes(index));
    const said = JSON.stringify([kinds, data.class_names, data.colours]);
    if (said === this.said) return;
    this.said = said;
    const most = 12;
    const entries = [
      ...kinds.map((kind) => mark(kind, "currentColor", SHAPES[kind].legend)),
      ...data.class_names.slice(0, most).map((name, index) => mark("sample", data.colours[index], name)),
    ];
    if (data.class_names.length > most) entries.push(text(`and ${data.class_names.length - most} more`));
    this.legend.replaceChildren(...entries);
  }

  // ---- frames

  wake() {
    if (!this.paper || !this.data) return;
    this.awake = performance.now() + AWAKE + (this.glide ?? 0);
    this.request ??= requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    this.draw(now);
    this.count += 1;
    if (now - this.frames.at(-1) > 500) this.frames = [];
    this.frames.push(now);
    while (now - this.frames[0] > 1000) this.frames.shift();
    const { dataset } = this.canvas;
    if (this.frames.length > 1)
      dataset.fps = ((1000 * (this.frames.length - 1)) / (now - this.frames[0])).toFixed(1);
    dataset.frames = this.count;
    dataset.view = [this.camera.yaw, this.camera.pitch, this.camera.zoom].map((x) => x.toFixed(3)).join(" ");
    dataset.points = this.ids.length;
    this.request = now < this.awake ? requestAnimationFrame((later) => this.frame(later)) : null;
  }

  positions(now) {
    const share = this.glide ? Math.min((now - this.received) / this.glide, 1) : 1;
    if (share >= 1) return this.target;
    const out = new Float32Array(this.target.length);
    for (let i = 0; i < out.length; i += 3) {
      const [x, y, z] = [0, 1, 2].map((j) => (1 - share) * this.origin[i + j] + share * this.target[i + j]);
      const length = Math.hypot(x, y, z);
      if (length > 1e-6) out.set([x / length, y / length, z / length], i);
      else out.set(this.target.subarray(i, i + 3), i); // between opposite points there is no shortest way
    }
    return out;
  }

  // Right, up and towards the viewer, each as a function of x, y, z (z points up at pitch 0).
  turn() {
    const { yaw, pitch } = this.camera;
    const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
    return (x, y, z) => {
      const side = x * cy - y * sy;
      const deep = x * sy + y * cy;
      return [side, z * cp + deep * sp, z * sp - deep * cp];
    };
  }

  draw(now) {
    const { canvas, paper, camera } = this;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    paper.clearRect(0, 0, width, height);
    const radius = 0.43 * Math.min(width, height) * camera.zoom;
    const turn = this.turn();
    const place = (x, y, z) => {
      const [right, up, near] = turn(x, y, z);
      return { x: width / 2 + radius * right, y: height / 2 - radius * up, near };
    };

    paper.globalAlpha = 0.05;
    paper.fillStyle = this.ink;
    disc(paper, width / 2, height / 2, radius);
    paper.fill();
    const positions = this.positions(now);
    this.placed = Array.from(this.ids, (_, row) => ({ row, ...place(...positions.subarray(3 * row, 3 * row + 3)) }));
    const depth = (point) => point.near + this.shape(point.row).lift;
    const order = this.placed.slice().sort((a, b) => depth(a) - depth(b));
    this.grid(place, false);
    for (const point of order) if (point.near < 0) this.mark(point);
    this.grid(place, true);
    for (const point of order) if (point.near >= 0) this.mark(point);
    for (const arrow of this.data.arrows) this.arrow(arrow, positions, place);
    paper.globalAlpha = 1;
    this.name();
  }

  grid(place, front) {
    const { paper } = this;
    paper.globalAlpha = front ? 0.22 : 0.09;
    paper.strokeStyle = this.ink;
    paper.lineWidth = 1;
    paper.setLineDash([]);
    paper.beginPath();
    for (const line of GRID) {
      let drawing = false;
      for (const point of line) {
        const { x, y, near } = place(...point);
        if (near >= 0 !== front) drawing = false;
        else if (drawing) paper.lineTo(x, y);
        else {
          paper.moveTo(x, y);
          drawing = true;
        }
      }
    }
    paper.stroke();
  }

  mark({ row, x, y, near }) {
    const { paper, data } = this;
    const shape = this.shape(row);
    const colour = data.colours[this.classes[row]] ?? data.unknown;
    const size = this.size(row, near);
    const fresh = this.ages && this.ages[row] >= 0 ? 1 - 0.85 * Math.min(this.ages[row] / data.oldest, 1) : 1;
    paper.globalAlpha = (near < 0 ? 0.4 : 1) * fresh;
    paper.setLineDash([]);
    shape.path(paper, x, y, size);
    if (shape.filled) {
      paper.fillStyle = colour;
      paper.fill();
      paper.strokeStyle = this.ground;
      paper.lineWidth = shape === SHAPES.query ? 1.5 : 0.5;
    } else {
      paper.strokeStyle = colour;
      paper.lineWidth = 2.5;
    }
    paper.stroke();
    if (shape === SHAPES.query) {
      paper.fillStyle = readable(colour);
      paper.font = `600 ${Math.round(1.2 * size)}px ${this.font}`;
      paper.textAlign = "center";
      paper.textBaseline = "middle";
      paper.fillText([...data.class_names[this.classes[row]]].at(-1), x, y + 0.5);
    }
    if (this.ids[row] === this.hovered) {
      paper.globalAlpha = 1;
      paper.strokeStyle = this.ink;
      paper.lineWidth = 1.5;
      disc(paper, x, y, size + 4);
      paper.stroke();
    }
  }

  shape(row) {
    return SHAPES[this.data.kind_names[this.kinds[row]]];
  }

  size(row, near) {
    return this.shape(row).radius * (0.85 + 0.15 * near) * Math.sqrt(this.camera.zoom);
  }

  // A vector at a point. Its length on screen is the root of its length, so that small ones show.
  arrow({ row, vector, label, dashed }, positions, place) {
    const length = Math.hypot(...vector);
    if (length < 1e-6) return;
    const { paper } = this;
    const base = positions.subarray(3 * row, 3 * row + 3);
    const from = place(...base);
    const to = place(...base.map((x, j) => x + (0.9 * vector[j]) / Math.sqrt(length)));
    const angle = Math.atan2(to.y - from.y, to.x - from.x);
    paper.globalAlpha = from.near < 0 ? 0.45 : 1;
    paper.strokeStyle = paper.fillStyle = this.ink;
    paper.lineWidth = 2.5;
    paper.setLineDash(dashed ? [5, 4] : []);
    paper.beginPath();
    paper.moveTo(from.x, from.y);
    paper.lineTo(to.x, to.y);
    paper.stroke();
    paper.setLineDash([]);
    paper.beginPath();
    for (const side of [-0.45, 0, 0.45]) {
      const reach = side ? 10 : 0;
      paper.lineTo(to.x - reach * Math.cos(angle + side), to.y - reach * Math.sin(angle + side));
    }
    if (dashed) paper.stroke();
    else paper.fill();
    paper.font = `600 13px ${this.font}`;
    paper.textAlign = to.x >= from.x ? "left" : "right";
    paper.textBaseline = "middle";
    paper.lineWidth = 3;
    paper.strokeStyle = this.ground;
    const x = to.x + (to.x >= from.x ? 7 : -7);
    paper.strokeText(label, x, to.y);
    paper.fillText(label, x, to.y);
  }

  // ---- names

  find(x, y) {
    const near = this.placed.filter((p) => Math.hypot(p.x - x, p.y - y) < this.size(p.row, p.near) + REACH);
    const distance = (p) => Math.hypot(p.x - x, p.y - y);
    near.sort((a, b) => b.near >= 0 !== a.near >= 0 ? b.near - a.near : distance(a) - distance(b));
    return near.length ? this.ids[near[0].row] : null;
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    this.hovered = this.placed ? this.find(event.clientX - box.left, event.clientY - box.top) : null;
    this.wake();
  }

  name() {
    const { tip, data } = this;
    const row = this.hovered === null ? -1 : this.ids.indexOf(this.hovered);
    tip.hidden = row < 0;
    if (row < 0) return;
    const { x, y } = this.placed[row];
    const right = x < this.canvas.clientWidth / 2;
    tip.style.left = right ? `${x + 16}px` : "auto";
    tip.style.right = right ? "auto" : `${this.canvas.clientWidth - x + 16}px`;
    tip.style.top = `${Math.max(y - 16, 0)}px`;
    tip.querySelector(".what").textContent = data.names ? data.names[row] : this.describe(row);
    const picture = tip.querySelector(".picture");
    picture.hidden = !data.sprite;
    if (!data.sprite) return;
    const { uri, side, across } = data.sprite;
    const shown = side * Math.max(1, Math.round(96 / side));
    Object.assign(picture.style, {
      width: `${shown}px`,
      height: `${shown}px`,
      backgroundSize: `${shown * across}px auto`,
      backgroundPosition: `-${shown * (row % across)}px -${shown * Math.floor(row / across)}px`,
    });
    if (this.picture !== uri) picture.style.backgroundImage = `url("${(this.picture = uri)}")`;
  }

  describe(row) {
    const { data } = this;
    const what = { query: "Query q", key: "Key k", queue: "Queued key", sample: "Sample" };
    const name = data.class_names[this.classes[row]] ?? "no class";
    const age = this.ages ? this.ages[row] : -1;
    const written = age < 0 ? "" : `, ${age} step${age === 1 ? "" : "s"} old`;
    return `${what[data.kind_names[this.kinds[row]]]} of ${name}${written}`;
  }

  // ---- mouse, touch, keyboard

  press(event) {
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.canvas.setPointerCapture(event.pointerId);
    this.travelled = 0;
  }

  move(event) {
    const was = this.pointers.get(event.pointerId);
    if (!was) return this.hover(event);
    const is = { x: event.clientX, y: event.clientY };
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) this.zoom(Math.hypot(is.x - other.x, is.y - other.y) / Math.hypot(was.x - other.x, was.y - other.y));
    else {
      const perPixel = 1 / (0.43 * Math.min(this.canvas.clientWidth, this.canvas.clientHeight) * this.camera.zoom);
      this.rotate((is.x - was.x) * perPixel, (is.y - was.y) * perPixel);
    }
    this.travelled += Math.hypot(is.x - was.x, is.y - was.y);
    this.pointers.set(event.pointerId, is);
    this.hovered = null;
  }

  release(event) {
    if (this.pointers.delete(event.pointerId) && this.travelled < 4) this.hover(event); // a tap names a point
  }

  leave() {
    if (!this.pointers.size) this.hovered = null;
    this.wake();
  }

  wheel(event) {
    const before = this.camera.zoom;
    this.zoom(Math.exp(-0.0015 * event.deltaY * (event.deltaMode ? 16 : 1)));
    if (this.camera.zoom !== before) event.preventDefault(); // at either end the page scrolls again
  }

  type(event) {
    const by = 0.12;
    const act = {
      ArrowLeft: () => this.rotate(-by, 0),
      ArrowRight: () => this.rotate(by, 0),
      ArrowUp: () => this.rotate(0, -by),
      ArrowDown: () => this.rotate(0, by),
      "+": () => this.zoom(1.15),
      "=": () => this.zoom(1.15),
      "-": () => this.zoom(1 / 1.15),
      0: () => Object.assign(this.camera, HOME),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
    this.share();
  }

  rotate(yaw, pitch) {
    this.camera.yaw += yaw;
    this.camera.pitch = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, this.camera.pitch + pitch));
    this.share();
  }

  zoom(factor) {
    this.camera.zoom = Math.max(ZOOM[0], Math.min(ZOOM[1], this.camera.zoom * factor));
    this.share();
  }

  share() {
    for (const view of views.values()) if (view.camera === this.camera) view.wake();
  }
}

// ---- shapes

function disc(paper, x, y, radius) {
  paper.beginPath();
  paper.arc(x, y, radius, 0, 2 * Math.PI);
}

function polygon(paper, corners) {
  paper.beginPath();
  for (const [x, y] of corners) paper.lineTo(x, y);
  paper.closePath();
}

function diamond(paper, x, y, radius) {
  polygon(paper, [[x, y - radius], [x + radius, y], [x, y + radius], [x - radius, y]]);
}

function triangle(paper, x, y, radius) {
  polygon(paper, [[x, y - radius], [x + 0.87 * radius, y + 0.5 * radius], [x - 0.87 * radius, y + 0.5 * radius]]);
}

const circle = (at) => Array.from({ length: 73 }, (_, i) => at((i * Math.PI) / 36));
const GRID = [
  ...[-60, -30, 0, 30, 60].map((degrees) => {
    const latitude = (degrees * Math.PI) / 180;
    return circle((a) => [Math.cos(latitude) * Math.cos(a), Math.cos(latitude) * Math.sin(a), Math.sin(latitude)]);
  }),
  ...[0, 30, 60, 90, 120, 150].map((degrees) => {
    const longitude = (degrees * Math.PI) / 180;
    return circle((a) => [Math.cos(longitude) * Math.cos(a), Math.sin(longitude) * Math.cos(a), Math.sin(a)]);
  }),
];

// Black or white, whichever stands out more (WCAG's relative luminance).
function readable(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const part = parseInt(colour.slice(i, i + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

function mark(kind, colour, label) {
  const swatch = document.createElement("canvas");
  [swatch.width, swatch.height] = [28, 28];
  const entry = text(label);
  const paper = swatch.getContext("2d");
  if (paper) {
    entry.prepend(swatch);
    const shape = SHAPES[kind];
    shape.path(paper, 14, kind === "queue" ? 16 : 14, kind === "sample" ? 8 : 11);
    const resolved = colour === "currentColor" ? "#8a8f98" : colour;
    paper.fillStyle = paper.strokeStyle = resolved;
    paper.lineWidth = 4;
    if (shape.filled) paper.fill();
    else paper.stroke();
  }
  return entry;
}

function text(label) {
  const entry = document.createElement("span");
  entry.append(label);
  return entry;
}

// ---- columns, sent as base64 of little-endian numbers

function bytes(encoded) {
  return Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0)).buffer;
}
const floats = (encoded) => new Float32Array(bytes(encoded));
const integers = (encoded) => new Int32Array(bytes(encoded));
