// Line charts that are sent again many times a minute: redrawn in a few milliseconds, in place.

const GAP = 6; // pixels between panels
const PAD = { left: 52, right: 16, top: 10, bottom: 40 };

const views = new Map(); // by mount point

export default function ({ parentElement, data }) {
  if (!views.has(parentElement)) views.set(parentElement, new View(parentElement));
  views.get(parentElement).receive(data);
  return () => {
    views.get(parentElement)?.resizing.disconnect();
    views.delete(parentElement);
  };
}

class View {
  constructor(root) {
    this.root = root.querySelector(".curves");
    this.canvas = root.querySelector("canvas");
    this.tip = root.querySelector(".tip");
    this.paper = this.canvas.getContext("2d");
    this.resizing = new ResizeObserver(() => this.draw());
    if (!this.paper) {
      this.canvas.hidden = true;
      root.querySelector(".unavailable").hidden = false;
      return;
    }
    this.resizing.observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
  }

  receive(data) {
    this.data = data;
    const style = getComputedStyle(this.root);
    this.ink = style.getPropertyValue("--st-text-color").trim() || "#31333f";
    this.ground = style.getPropertyValue("--st-background-color").trim() || "#ffffff";
    this.font = style.getPropertyValue("--st-font").trim() || "sans-serif";
    this.canvas.setAttribute("aria-label", data.summary);
    this.canvas.dataset.last = String(data.panels[0].lines[0].x.at(-1));
    this.draw();
  }

  // Panels side by side, or one below the other where there is no room.
  boxes() {
    const { panels, height } = this.data;
    const width = this.canvas.clientWidth;
    const columns = width < 640 ? 1 : panels.length;
    this.root.style.setProperty("--height", `${(height * panels.length) / columns}px`);
    const each = (width - GAP * (columns - 1)) / columns;
    return panels.map((panel, i) => ({
      panel,
      left: (i % columns) * (each + GAP) + PAD.left,
      right: (i % columns) * (each + GAP) + each - PAD.right,
      top: Math.floor(i / columns) * height + PAD.top + 16 * panel.lines.length,
      bottom: Math.floor(i / columns) * height + height - PAD.bottom,
    }));
  }

  draw() {
    if (!this.paper || !this.data || !this.canvas.clientWidth) return;
    const { canvas, paper } = this;
    this.placed = this.boxes().map((box) => ({ ...box, ...scales(box) }));
    const ratio = Math.min(devicePixelRatio || 1, 2);
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    paper.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    for (const box of this.placed) this.panel(box);
  }

  panel({ panel, left, right, top, bottom, x, y }) {
    const { paper } = this;
    paper.font = `12px ${this.font}`;
    paper.lineWidth = 1;
    paper.strokeStyle = paper.fillStyle = this.ink;
    for (const value of y.ticks) {
      this.line([left, right], [y.at(value), y.at(value)], 0.12);
      this.text(short(value), left - 6, y.at(value), "right");
    }
    for (const value of x.ticks) this.text(short(value), x.at(value), bottom + 12, "center");
    this.text(this.data.x_title, (left + right) / 2, bottom + 30, "center");
    this.text(panel.title, left - 42, (top + bottom) / 2, "center", -Math.PI / 2);
    for (const mark of panel.marks) {
      paper.setLineDash([5, 4]);
      this.line([left, right], [y.at(mark.value), y.at(mark.value)], 0.6);
      paper.setLineDash([]);
    }
    paper.save();
    paper.beginPath();
    paper.rect(left, top - 2, right - left, bottom - top + 4);
    paper.clip();
    panel.lines.forEach((line) => {
      paper.strokeStyle = line.colour;
      paper.lineWidth = 2;
      paper.setLineDash(line.dotted ? [2, 3] : []);
      this.line(line.x.map(x.at), line.y.map(y.at), 1);
    });
    paper.restore();
    paper.setLineDash([]);
    for (const { label, value } of panel.marks) {
      paper.strokeStyle = this.ground;
      paper.lineWidth = 4;
      this.text(label, right - 2, y.at(value) + (value < 0 ? 9 : -9), "right", 0, 1, true);
    }
    panel.lines.forEach((line, i) => {
      const at = top - 16 * (panel.lines.length - i) + 3;
      paper.strokeStyle = line.colour;
      paper.lineWidth = 3;
      paper.setLineDash(line.dotted ? [2, 3] : []);
      this.line([left, left + 22], [at, at], 1);
      paper.setLineDash([]);
      paper.fillStyle = this.ink;
      this.text(line.label, left + 28, at, "left");
    });
  }

  line(xs, ys, alpha) {
    const { paper } = this;
    paper.globalAlpha = alpha;
    paper.beginPath();
    xs.forEach((x, i) => paper.lineTo(x, ys[i]));
    paper.stroke();
  }

  text(label, x, y, align, angle = 0, alpha = 0.85, outlined = false) {
    const { paper } = this;
    paper.save();
    paper.globalAlpha = alpha;
    paper.textAlign = align;
    paper.textBaseline = "middle";
    paper.translate(x, y);
    paper.rotate(angle);
    if (outlined) paper.strokeText(label, 0, 0);
    paper.fillText(label, 0, 0);
    paper.restore();
  }

  // The values under the pointer.
  point(event) {
    const frame = this.canvas.getBoundingClientRect();
    const [px, py] = event ? [event.clientX - frame.left, event.clientY - frame.top] : [-1, -1];
    const box = this.placed?.find(
      ({ left, right, top, bottom }) => px >= left && px <= right && py >= top - 20 && py <= bottom + 20,
    );
    this.tip.hidden = !box;
    this.draw();
    if (!box) return;
    const step = box.x.from(px);
    const [xs] = box.panel.lines.map((line) => line.x);
    const i = xs.reduce((best, x, at) => (Math.abs(x - step) < Math.abs(xs[best] - step) ? at : best), 0);
    this.paper.strokeStyle = this.ink;
    this.paper.lineWidth = 1;
    this.line([box.x.at(xs[i]), box.x.at(xs[i])], [box.top, box.bottom], 0.5);
    const values = box.panel.lines.filter((line) => i < line.y.length);
    this.tip.replaceChildren(
      `${this.data.x_title} ${xs[i]}`,
      ...values.map((line) => {
        const row = document.createElement("div");
        row.append(`${line.label}: ${numeral(line.y[i].toFixed(3))}`);
        return row;
      }),
    );
    const toLeft = px > this.canvas.clientWidth / 2;
    this.tip.style.left = toLeft ? "auto" : `${px + 14}px`;
    this.tip.style.right = toLeft ? `${this.canvas.clientWidth - px + 14}px` : "auto";
    this.tip.style.top = `${py}px`;
  }
}

function scales({ panel, left, right, top, bottom }) {
  const xs = panel.lines.flatMap((line) => [line.x[0], line.x.at(-1)]);
  const ys = [...panel.lines.flatMap((line) => line.y), ...panel.marks.map((mark) => mark.value)];
  const lows = panel.range ? panel.range : [Math.min(...ys), 1.06 * Math.max(...ys)];
  return { x: scale([Math.min(...xs), Math.max(...xs)], left, right), y: scale(lows, bottom, top) };
}

function scale([low, high], start, end) {
  if (high <= low) high = low + 1;
  const perUnit = (end - start) / (high - low);
  const rough = (high - low) / Math.max(2, Math.abs(end - start) / 50);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(low / step);
  const ticks = Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
  return { at: (value) => start + (value - low) * perUnit, from: (pixel) => low + (pixel - start) / perUnit, ticks };
}

function short(value) {
  return numeral(Math.abs(value) >= 1000 ? `${+(value / 1000).toFixed(2)}k` : String(+value.toFixed(6)));
}

// With a minus sign where JavaScript puts a hyphen.
function numeral(text) {
  return text.replace("-", "−");
}
