// One Plotly chart, drawn when it comes near the window, or before that in an idle moment. New data are drawn in
// place: zoom and the entries hidden in the legend stay. This function runs again at each change of data or theme;
// everything it remembers hangs on its element.

const NEAR = "50% 0px"; // half a window above and below
const PAUSE = 100; // milliseconds before each chart that is out of sight

export default function ({ data, parentElement, setStateValue }) {
  const chart = (parentElement.chart ??= new Chart(parentElement));
  chart.send = setStateValue;
  const { drawn_at: drawnAt, ...spec } = data;
  chart.drawnAt = drawnAt;
  chart.show(spec);
  return () => chart.close();
}

class Chart {
  constructor(parent) {
    this.root = element("div", "moco-chart", parent);
    this.root.setAttribute("role", "figure");
    this.note = element("p", "note", this.root);
    this.note.hidden = true;
    this.plot = element("div", "plot", this.root);
    this.timer = ifMissing(() =>
      this.message("The chart can't be drawn: plotly.js did not load. Reload the page to try again."),
    );
    this.redraw = () => this.draw();
    this.sight = new IntersectionObserver(
      (entries) => {
        this.near = entries.at(-1).isIntersecting;
        if (this.near) this.draw();
      },
      { rootMargin: NEAR },
    );
    this.sight.observe(this.root);
    this.sizing = new ResizeObserver(() => this.fit());
    this.sizing.observe(this.plot);
  }

  close() {
    this.sight.disconnect();
    this.sizing.disconnect();
    clearTimeout(this.timer);
    shelf.waiting.delete(this.redraw);
    shelf.unseen.delete(this);
    if (this.drawn) Plotly.purge(this.plot);
    this.plot.emit = () => {}; // what plotly.js still has under way will tell nobody
  }

  show(spec) {
    const theme = readTheme(this.root);
    const stamp = JSON.stringify([spec, theme]);
    if (stamp === this.stamp) {
      if (!this.stale) this.tell(); // the page ran again, the chart is the same
      return;
    }
    Object.assign(this, { spec, theme, stamp, stale: true });
    delete this.root.dataset.drawn;
    this.root.setAttribute("aria-label", spec.summary);
    this.root.style.setProperty("--height", `${spec.height}px`);
    this.root.style.setProperty("--width", `${spec.width}px`);
    if (this.near) this.draw();
    else whenIdle(this);
  }

  // Nothing is drawn where there is no room, as in a closed expander: it comes into sight later.
  draw() {
    if (!this.stale || !this.plot.offsetWidth) return;
    if (!globalThis.Plotly) {
      shelf.waiting.add(this.redraw);
      return;
    }
    shelf.waiting.delete(this.redraw);
    shelf.unseen.delete(this);
    this.message("");
    this.stale = false;
    const { data, layout } = JSON.parse(this.spec.figure);
    const { clickable } = this.spec;
    delete layout.height; // that of the element
    Object.assign(layout, {
      template: template(this.theme),
      autosize: true,
      uirevision: "kept",
      selectionrevision: this.stamp,
      clickmode: clickable ? "event+select" : "event",
    });
    this.size = this.measured();
    const config = this.drawn ? undefined : this.config(); // plotly.js starts afresh with a new one
    Plotly.react(this.plot, data, layout, config).then(() => {
      this.root.dataset.drawn = "";
      this.tell();
    });
    if (!this.drawn) this.plot.on("plotly_click", ({ points }) => this.click(points[0]));
    this.drawn = true;
  }

  tell() {
    tell(this.drawnAt);
    this.drawnAt = "";
  }

  config() {
    return {
      displaylogo: false,
      displayModeBar: this.spec.mode_bar ? "hover" : false,
      showSendToCloud: false, // plotly.js would offer to upload the picture
      plotlyServerURL: "",
      modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d", "autoScale2d"],
      modeBarButtonsToAdd: [
        pictureButton(() => this.download()),
        {
          name: "fullscreen",
          title: "Fill the screen (Esc ends it)",
          icon: FRAME,
          click: () => (document.fullscreenElement ? document.exitFullscreen() : this.root.requestFullscreen()),
        },
      ],
    };
  }

  download() {
    const { data, layout, offsetWidth: width, offsetHeight: height } = this.plot;
    savePicture(data, { ...layout, width, height }, this.theme, this.spec.file);
  }

  click(point) {
    if (this.spec.clickable && point?.customdata) this.send("clicked", Array.from(point.customdata));
  }

  measured() {
    return `${this.plot.offsetWidth} ${this.plot.offsetHeight}`;
  }

  fit() {
    if (!this.drawn || !this.plot.offsetWidth || this.measured() === this.size) return;
    this.size = this.measured();
    Plotly.Plots.resize(this.plot);
  }

  message(text) {
    this.note.textContent = text;
    this.note.hidden = !text;
  }
}

const FRAME = {
  width: 24,
  height: 24,
  path: "M4 4h6v2H6v4H4zM14 4h6v6h-2V6h-4zM4 14h2v4h4v2H4zM18 14h2v6h-6v-2h4z",
};

// One chart at a time and not at once, so that the browser shows what it has and can answer in between.
function whenIdle(chart) {
  shelf.unseen.add(chart);
  if (shelf.unseen.size > 1) return;
  const next = () => {
    const [first] = shelf.unseen;
    if (!first) return;
    if (!globalThis.Plotly) {
      shelf.waiting.add(resume);
      return;
    }
    shelf.unseen.delete(first);
    if (shelf.unseen.size) soon(next); // first of all: a chart that can't be drawn must not hold up the others
    first.draw();
  };
  const resume = () => {
    shelf.waiting.delete(resume);
    soon(next);
  };
  soon(next);
}

function soon(task) {
  setTimeout(() => (globalThis.requestIdleCallback ? requestIdleCallback(task) : task()), PAUSE);
}

// What a figure leaves open: fonts and colours of the app, on no ground of its own.
function template({ text, background, font }) {
  const line = "rgba(128,128,128,0.22)";
  const axis = {
    gridcolor: line,
    linecolor: line,
    zerolinecolor: line,
    ticklabelstandoff: 4,
    ticklabeloverflow: "allow", // else each label is measured once more
    title: { font: { size: 14 }, standoff: 12 },
  };
  return {
    layout: {
      font: { family: font, color: text, size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: { ...axis, showgrid: false, zeroline: false },
      yaxis: axis,
      hoverlabel: { bgcolor: background, bordercolor: line, font: { family: font, color: text, size: 12 } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: text, activecolor: text },
    },
  };
}
