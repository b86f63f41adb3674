// What the components that draw with plotly.js have in common; put before the script of each.

const PATIENCE = 10000; // milliseconds to wait for plotly.js

// What the components of a page know of one another: packs of columns (see packs.py), what is to be called once
// there is more to draw with, and charts still to be drawn, out of sight.
const shelf = (globalThis.mocoShelf ??= { packs: new Map(), waiting: new Set() });
shelf.unseen ??= new Set();

// The page may wait for its first picture before it sends what lies below. Once the browser has time: that it has
// drawn the picture, and its controls, too.
function tell(address) {
  if (!address) return;
  const post = () => fetch(new URL(address, document.baseURI), { method: "POST" }).catch(() => {});
  (globalThis.requestIdleCallback ?? setTimeout)(post);
}

// Calls `say` if plotly.js does not come; returns a timer.
function ifMissing(say) {
  return globalThis.Plotly ? 0 : setTimeout(() => globalThis.Plotly || say(), PATIENCE);
}

function readTheme(node) {
  const style = getComputedStyle(node);
  const read = (name, otherwise) => style.getPropertyValue(`--st-${name}`).trim() || otherwise;
  return {
    text: read("text-color", "#333333"),
    background: read("background-color", "#ffffff"),
    primary: read("primary-color", "#2f5fc4"),
    font: read("font", "sans-serif"),
  };
}

function element(tag, className, parent, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text; // never HTML: names come from outside
  parent.append(node);
  return node;
}

// The mode bar's button for a figure as PNG.
function pictureButton(click) {
  return { name: "picture", title: "Download the picture (PNG)", icon: Plotly.Icons.camera, click };
}

// A figure as PNG, on the ground of the page: letters of a dark theme can't be read on white. An image can't have the
// page's font, and whatever was measured in that would be cut.
function savePicture(data, layout, { background, text }, filename) {
  const { width, height } = layout;
  const look = { paper_bgcolor: background, font: { color: text, family: "sans-serif" } };
  const figure = { data, layout: { ...layout, ...look }, config: {} };
  Plotly.downloadImage(figure, { format: "png", scale: 2, width, height, filename });
}
