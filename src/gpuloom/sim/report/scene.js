// What all charts share: the data, the stretch of time in view, the chosen run and job, the colours, the tool tip.

const $$ = (id) => document.getElementById(id);
const data = JSON.parse($$("data").textContent);
const [RUNNING, STARTING, STOPPING, CUTTING] = [0, 1, 2, 3];

for (const run of data.runs) {
  run.segments = run.segments.map(([gpu, top, height, job, phase, begin, end, device]) => ({
    gpu, top, height, phase, begin, end,
    id: job < 0 ? null : run.jobs[job],
    colour: job < 0 ? -1 : run.colours[job],
    device: run.devices[device],
  }));
}
const starts = data.runs.flatMap((run) => [
  ...run.segments.slice(0, 1).map((segment) => segment.begin), ...run.curves.flatMap((curve) => curve.at_s.slice(0, 1)),
]);
const whole = { from: Math.min(...starts), to: Math.max(...data.runs.map((run) => run.end_s)) };
if (whole.from > 0 && whole.from < whole.to / 20) whole.from = 0;
if (!(whole.to > whole.from)) Object.assign(whole, { from: 0, to: 1 });

const scene = { from: whole.from, to: whole.to, run: 0, pinned: null, hover: null, cursor: null, unit: 1, charts: [] };

// Colours have their names from the stylesheet, in the theme that holds now.
let paints = {};
function paint(name) {
  return (paints[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
}

// Letters in charts grow with those of the page; on paper, a chart is drawn as wide as a sheet and sharper.
const SHEET = 720;
const onPaper = () => document.documentElement.classList.contains("on-paper");

function draw() {
  scene.unit = onPaper() ? 0.85 : parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;
  for (const chart of scene.charts) chart();
}
function redraw() {
  if (scene.frame) return;
  scene.frame = requestAnimationFrame(() => {
    scene.frame = 0;
    draw();
  });
}

// A canvas at the screen's own resolution, in whole pixels so that nothing blurs; returns its context, cleared, in CSS pixels.
function prepare(canvas, height) {
  const ratio = onPaper() ? 3 : window.devicePixelRatio || 1;
  const width = onPaper() ? SHEET : canvas.parentElement.clientWidth;
  const tall = Math.round(height);
  Object.assign(canvas.style, { width: `${width}px`, height: `${tall}px` });
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(tall * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(tall * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, tall);
  letters(pen, 11.5);
  pen.textBaseline = "middle";
  return { pen, width, height: tall };
}

function letters(pen, pixels) {
  pen.font = `${pixels * scene.unit}px ${getComputedStyle(document.body).fontFamily}`;
}

// All charts have the same margins, so that a moment is at the same place in each.
const margin = (width) => ({ left: (width < 560 ? 50 : 66) * scene.unit, right: 16 * scene.unit });
function xOf(seconds, width) {
  const { left, right } = margin(width);
  return left + ((seconds - scene.from) / (scene.to - scene.from)) * (width - left - right);
}
function timeAt(x, width) {
  const { left, right } = margin(width);
  return scene.from + ((x - left) / (width - left - right)) * (scene.to - scene.from);
}

function look(from, to) {
  const span = Math.min(Math.max(to - from, (whole.to - whole.from) / 1e5, 0.05), whole.to - whole.from);
  const begin = Math.min(Math.max(from, whole.from), whole.to - span);
  Object.assign(scene, { from: begin, to: begin + span });
  redraw();
}
function zoom(factor, around = (scene.from + scene.to) / 2) {
  look(around - (around - scene.from) * factor, around + (scene.to - around) * factor);
}
function pan(seconds) {
  const span = scene.to - scene.from;
  const from = Math.min(Math.max(scene.from + seconds, whole.from), whole.to - span);
  look(from, from + span);
}

function axis(pen, width, top, bottom, labelY) {
  const { left, right } = margin(width);
  const { at, digits } = marks(scene.from, scene.to, width - left - right, 96 * scene.unit);
  pen.textAlign = "center";
  for (const seconds of at) {
    const x = Math.round(xOf(seconds, width)) + 0.5;
    pen.strokeStyle = paint("line");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, bottom);
    pen.stroke();
    pen.fillStyle = paint("soft");
    const text = words(seconds, digits);
    const half = pen.measureText(text).width / 2;
    pen.fillText(text, Math.min(Math.max(x, left + half), width - half - 4), labelY);
  }
}

function cursorLine(pen, width, top, bottom) {
  if (scene.cursor === null || scene.cursor < scene.from || scene.cursor > scene.to) return;
  const x = Math.round(xOf(scene.cursor, width)) + 0.5;
  pen.strokeStyle = paint("soft");
  pen.lineWidth = 1;
  pen.setLineDash([3, 3]);
  pen.beginPath();
  pen.moveTo(x, top);
  pen.lineTo(x, bottom);
  pen.stroke();
  pen.setLineDash([]);
}

// Names come from users: they enter the page as text, never as HTML.
function tip(title, rows, x, y) {
  const box = $$("tip");
  box.replaceChildren();
  box.append(Object.assign(document.createElement("b"), { textContent: title }));
  for (const [name, value, colour] of rows) {
    const row = document.createElement("div");
    const key = Object.assign(document.createElement("span"), { textContent: name });
    if (colour) {
      const dot = Object.assign(document.createElement("i"), { className: "swatch" });
      dot.style.background = colour;
      key.prepend(dot);
    }
    row.append(key, Object.assign(document.createElement("span"), { textContent: value }));
    box.append(row);
  }
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(8, x + width + 24 > innerWidth ? x - width - 14 : x + 14)}px`;
  box.style.top = `${Math.max(8, Math.min(y + 14, innerHeight - height - 8))}px`;
}
function hideTip() {
  $$("tip").hidden = true;
}
