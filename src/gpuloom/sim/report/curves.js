// Queue, utilisation and fragmentation over time, every run in the colour of its policy.

// How far each scale reaches at least (or, of a share, at most), its values in the tool tip and at its marks.
const count = (value) => (value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en"));
const CURVES = [
  { least: 1, show: count, mark: (value) => value.toLocaleString("en") },
  { most: 1, show: (value) => `${(value * 100).toFixed(1)} %`, mark: (value) => `${Math.round(value * 100)} %` },
  { least: 0.04, show: (value) => value.toFixed(3), mark: (value) => `${Number(value.toFixed(3))}` },
];
const curveCanvases = [...document.querySelectorAll(".curves canvas")];

// A round number of four steps or fewer that covers the largest value.
function scaleOf(kind, index) {
  const largest = Math.max(kind.least ?? 0, ...data.runs.flatMap((run) => run.curves[index].values));
  if (kind.most) return { top: Math.max(kind.most, largest), step: 0.25 };
  const rough = largest / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const sizes = [1, 2, 2.5, 5, 10].map((factor) => factor * power);
  const step = Math.max(sizes.find((size) => size >= rough * 0.999), kind.least < 1 ? 0 : 1);
  return { top: Math.ceil(largest / step - 1e-9) * step, step };
}
const scales = CURVES.map(scaleOf);

function valueAt(run, index, seconds) {
  const { at_s: times, values } = run.curves[index];
  if (!times.length || seconds < times[0] || seconds > run.end_s) return null;
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle] <= seconds) low = middle;
    else high = middle - 1;
  }
  return values[low];
}

function trace(pen, run, index, width, yOf) {
  const { at_s: times, values } = run.curves[index];
  let open = false;
  for (let at = 0; at < times.length; at++) {
    const end = at + 1 < times.length ? times[at + 1] : run.end_s;
    if (end < scene.from || times[at] > scene.to) continue;
    const y = yOf(values[at]);
    if (open) pen.lineTo(xOf(times[at], width), y);
    else pen.moveTo(xOf(times[at], width), y);
    pen.lineTo(xOf(end, width), y);
    open = true;
  }
}

function drawCurve(index) {
  const { pen, width, height } = prepare(curveCanvases[index], 132 * scene.unit);
  const { left, right } = margin(width);
  const { top, step } = scales[index];
  const [ceiling, floor] = [9 * scene.unit, height - 24 * scene.unit];
  const yOf = (value) => floor - (value / top) * (floor - ceiling);
  axis(pen, width, ceiling, floor, height - 10 * scene.unit);
  pen.textAlign = "right";
  for (let value = 0; value <= top * 1.0001; value += step) {
    const y = Math.round(yOf(value)) + 0.5;
    pen.strokeStyle = paint("line");
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(width - right, y);
    pen.stroke();
    pen.fillStyle = paint("soft");
    if (step !== 0.25 || Math.round(value / step) % 2 === 0) pen.fillText(CURVES[index].mark(value), left - 10, y);
  }
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width - left - right, height);
  pen.clip();
  pen.lineJoin = "round";
  const order = [...data.runs.keys()].sort((a, b) => (a === scene.run) - (b === scene.run));
  for (const at of order) {
    const run = data.runs[at];
    pen.strokeStyle = paint(run.colour);
    pen.globalAlpha = at === scene.run ? 1 : 0.75;
    pen.lineWidth = (at === scene.run ? 2 : 1.25) * scene.unit;
    pen.beginPath();
    trace(pen, run, index, width, yOf);
    pen.stroke();
  }
  pen.restore();
  cursorLine(pen, width, ceiling, floor);
}

function tellCurve(index, x, y) {
  const rows = data.runs.map((run) => {
    const value = valueAt(run, index, scene.cursor);
    const several = data.runs.some((other) => other.policy === run.policy && other.seed !== run.seed);
    const name = several ? `${run.policy}, seed ${run.seed}` : run.policy;
    return [name, value === null ? "–" : CURVES[index].show(value), paint(run.colour)];
  });
  tip(words(scene.cursor, scene.to - scene.from < 600 ? 1 : 0), rows, x, y);
}
