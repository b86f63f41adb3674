// The one figure of plotly.js in which an explorer draws all its panes, each on axes of its own: every figure takes
// two WebGL contexts, which cost as much as 50,000 points.

const TWEEN = 700; // milliseconds of one step of an animation
const TWEEN_LIMIT = 20000; // points beyond which steps are not interpolated
const SETTLED = 100; // milliseconds after which a new size is taken for the last one

class Graph {
  constructor(app) {
    this.app = app;
    this.plot = element("div", "plot", app.plots);
    this.drawn = false;
    this.armed = false;
    this.download = this.download.bind(this); // plotly.js starts afresh when a button gets another function
  }

  clear() {
    clearTimeout(this.timer);
    if (globalThis.Plotly) Plotly.purge(this.plot);
    this.plot.emit = () => {}; // what plotly.js still has under way will tell nobody
  }

  get solid() {
    return this.app.panes[0].solid;
  }

  async draw() {
    const { panes } = this.app;
    if (this.solid && !hasWebGL()) return;
    for (const pane of panes) pane.point(-1);
    const traces = panes.flatMap((pane) => pane.traces());
    this.space = this.measured();
    const react = () => Plotly.react(this.plot, traces, this.layout(), this.config());
    await (this.solid ? react() : oneSample(react));
    if (this.app.stopped) return;
    if (!this.drawn) this.listen();
    this.drawn = true;
    for (const pane of panes) pane.settle(this.plot._fullLayout);
  }

  // Sizes and places that the picture depends on.
  measured() {
    const { offsetWidth, offsetHeight } = this.app.plots;
    const places = this.app.panes.map(({ frame }) => [frame.offsetLeft, frame.offsetTop, frame.offsetWidth]);
    return JSON.stringify([offsetWidth, offsetHeight, places]);
  }

  fit() {
    clearTimeout(this.timer);
    if (!this.drawn || !this.app.plots.offsetWidth || this.measured() === this.space) return;
    this.timer = setTimeout(() => this.draw(), SETTLED);
  }

  // A lasso takes WebGL pictures buffers of their own; they are made once a hand comes near.
  arm() {
    if (this.armed || !this.drawn) return;
    this.armed = true;
    Plotly.relayout(this.plot, { dragmode: this.dragmode() });
  }

  dragmode() {
    return this.solid ? "orbit" : this.armed && "lasso";
  }

  layout() {
    const { panes, plots, spec, theme } = this.app;
    plots.style.setProperty("--bar", `${panes[0].frame.offsetTop}px`);
    return {
      ...Object.assign({}, ...panes.map((pane) => pane.axes())),
      width: plots.offsetWidth,
      height: plots.offsetHeight,
      uirevision: spec.view,
      selectionrevision: Math.random(), // outlines never stay: what is selected is a set of samples
      selections: [],
      dragmode: this.dragmode(),
      hovermode: "closest",
      hoverdistance: 12,
      margin: { l: 0, r: 0, t: 0, b: 0 },
      font: { color: theme.text, family: theme.font },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      newselection: { line: { color: theme.primary, width: 2, dash: "solid" } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.text, activecolor: theme.primary },
      showlegend: false,
    };
  }

  config() {
    return {
      displaylogo: false,
      showSendToCloud: false, // plotly.js would offer to upload the picture
      plotlyServerURL: "",
      displayModeBar: true,
      responsive: false,
      ...(!this.solid && { plotGlPixelRatio: devicePixelRatio }), // not four pixels for one of the screen
      modeBarButtonsToRemove: ["toImage", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetCameraLastSave3d"],
      modeBarButtonsToAdd: [pictureButton(this.download)],
    };
  }

  listen() {
    const { plot, app } = this;
    plot.on("plotly_hover", ({ points }) => {
      const { pane, point } = this.meant(points[0]);
      if (pane) app.hover(pane, point);
    });
    plot.on("plotly_unhover", () => app.leave());
    plot.on("plotly_click", ({ points }) => {
      const { row } = this.meant(points[0]);
      if (row >= 0) app.pick(row);
    });
    plot.on("plotly_selected", (event) => {
      if (!event?.lassoPoints && !event?.range) return; // our own clearing of outlines
      const rows = event.points.map((hit) => this.meant(hit).row).filter((row) => row >= 0);
      app.select(new Set(rows), Boolean(app.pointer?.shiftKey));
    });
    plot.on("plotly_relayout", (change) => {
      for (const pane of app.panes) pane.keep(change, plot.layout);
    });
    plot.on("plotly_deselect", () => app.select([], false));
  }

  // The pane, the point among all of it and the sample that plotly.js names by trace and place; nothing for marks.
  meant(hit) {
    let curve = hit?.curveNumber ?? Infinity;
    for (const pane of this.app.panes) {
      const point = pane.pointOf(curve, hit?.pointNumber ?? hit?.pointIndex);
      if (point >= 0) return { pane, point, row: pane.points.arrays.samples[point] };
      curve -= pane.curves;
    }
    return {};
  }

  // Moves all points to `targets`, the positions of each pane, or null for one that stays.
  async move(targets, duration) {
    const { panes } = this.app;
    const from = panes.map((pane) => pane.positions);
    const moved = panes.map((pane, i) => [pane, from[i], targets[i]]).filter(([, , target]) => target);
    const ticket = (this.ticket = {});
    const start = performance.now();
    const quick = panes.some((pane) => pane.count > TWEEN_LIMIT) || document.hidden || reducedMotion();
    while (!quick && duration > 0) {
      const t = Math.min(1, (performance.now() - start) / duration);
      if (t >= 1) break;
      const ease = t * t * (3 - 2 * t);
      for (const [pane, before, target] of moved) {
        pane.positions = before.map((value, i) => value + ease * (target[i] - value));
      }
      await this.restyle();
      await new Promise(requestAnimationFrame);
      if (this.ticket !== ticket) return;
    }
    for (const [pane, , target] of moved) pane.positions = target;
    await this.restyle();
  }

  async restyle() {
    if (!this.drawn) return;
    const places = this.app.panes.flatMap((pane) => pane.places());
    const names = this.solid ? ["x", "y", "z"] : ["x", "y"];
    await Plotly.restyle(this.plot, Object.fromEntries(names.map((name) => [name, places.map((place) => place[name])])));
  }

  // The picture as it stands, with its titles and legend, which are no part of it on the page.
  download() {
    const { panes, spec, theme } = this.app;
    const { meta } = panes[0].colour;
    const nowhere = { x: [null], y: [null] };
    const empty = this.solid ? { type: "scatter3d", ...nowhere, z: [null] } : { type: "scatter", ...nowhere };
    const entry = (name, marker) => ({ ...empty, mode: "markers", name: escapeHtml(name), marker, showlegend: true });
    const present = new Set(panes[0].colour.arrays.values);
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
    const { width, height } = this.plot.layout;
    const layout = {
      ...this.plot.layout,
      width: width + 160,
      height: height + 50,
      title: { text: escapeHtml(spec.caption), font: { size: 14 } },
      annotations: panes.flatMap((pane) => pane.title(width, height)),
      margin: { l: 0, r: 160, t: 50, b: 0 },
      showlegend: Boolean(meta.names),
      legend: { itemsizing: "constant" },
    };
    savePicture([...this.plot.data, ...keys], layout, theme, spec.file);
  }
}

// plotly.js asks for several samples a pixel, and has no setting for it. A browser without a GPU takes 0.3 s longer for
// them, and round points, whose edges the shader blends, look the same.
function oneSample(draw) {
  const { getContext } = HTMLCanvasElement.prototype;
  HTMLCanvasElement.prototype.getContext = function (type, attributes) {
    return getContext.call(this, type, { ...attributes, antialias: false });
  };
  try {
    return draw();
  } finally {
    HTMLCanvasElement.prototype.getContext = getContext;
  }
}

function escapeHtml(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function reducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
