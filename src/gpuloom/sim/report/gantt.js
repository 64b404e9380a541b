// The Gantt chart: a lane for each GPU, each slice at its memory units, each share at its part of the device.

const axisHeight = () => Math.round(30 * scene.unit);
const gantt = $$("gantt");
const scroller = $$("scroller");

function laneOf(index) {
  const lanes = data.runs[scene.run].models.length;
  const unscaled = Math.min(Math.max(Math.floor(460 / Math.max(lanes, 1)), 20), 66);
  const pitch = Math.round(unscaled * scene.unit);
  const gap = Math.round((unscaled > 40 ? 8 : unscaled > 26 ? 5 : 3) * scene.unit);
  return { top: axisHeight() + Math.floor(gap / 2) + index * pitch, height: pitch - gap, pitch };
}

function boxOf(segment, width) {
  const lane = laneOf(segment.gpu);
  const [x, end] = [xOf(segment.begin, width), xOf(segment.end, width)];
  const y = lane.top + segment.top * lane.height;
  return { x, y, width: Math.max(end - x, 0.75), height: Math.max(segment.height * lane.height, 1) };
}

const hatches = {};
function hatch(pen, phase) {
  if (hatches[phase]) return hatches[phase];
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.strokeStyle = phase === CUTTING ? paint("cut") : paint("hatch");
  brush.lineWidth = phase === CUTTING ? 1 : 1.8;
  const lines = {
    [STARTING]: [[-2, 4, 4, -2], [-2, 10, 10, -2], [4, 10, 10, 4]],
    [STOPPING]: [[-2, 2, 4, 8], [-2, -2, 8, 8], [2, -2, 8, 4]],
    [CUTTING]: [[1.5, 0, 1.5, 6], [4.5, 0, 4.5, 6]],
  };
  for (const [x1, y1, x2, y2] of lines[phase]) {
    brush.beginPath();
    brush.moveTo(x1, y1);
    brush.lineTo(x2, y2);
    brush.stroke();
  }
  return (hatches[phase] = pen.createPattern(tile, "repeat"));
}

function drawBox(pen, box, radius) {
  pen.beginPath();
  const round = Math.min(radius, box.height / 4);
  if (box.width > 4 && round > 1) pen.roundRect(box.x, box.y, box.width, box.height, round);
  else pen.rect(box.x, box.y, box.width, box.height);
  pen.fill();
}

function drawSegment(pen, segment, width, left) {
  const full = boxOf(segment, width);
  const box = { ...full };
  if (box.x < left) [box.x, box.width] = [left - 6, box.width - (left - 6 - box.x)];
  if (box.width > 3) box.width -= 0.75;
  if (box.height > 3) [box.y, box.height] = [box.y + 0.5, box.height - 1];
  const followed = scene.pinned ?? scene.hover?.id ?? null;
  pen.globalAlpha = followed === null || segment.id === followed ? 1 : scene.pinned === null ? 0.6 : 0.2;
  if (segment.phase === CUTTING) {
    pen.fillStyle = hatch(pen, CUTTING);
    drawBox(pen, box, 2);
    return;
  }
  pen.fillStyle = paint(`c${segment.colour}`);
  if (segment.phase === RUNNING) {
    drawBox(pen, box, 2.5);
    label(pen, segment, box, left);
    return;
  }
  pen.globalAlpha *= 0.5;
  drawBox(pen, box, 2.5);
  pen.globalAlpha *= 2;
  pen.fillStyle = hatch(pen, segment.phase);
  drawBox(pen, box, 2.5);
}

function label(pen, segment, box, left) {
  const from = Math.max(box.x, left);
  const room = box.x + box.width - from - 9;
  const height = box.height / scene.unit;
  if (height < 11.5 || room < 14) return;
  if (height < 14) letters(pen, 10);
  if (pen.measureText(segment.id).width <= room) {
    pen.textAlign = "left";
    pen.fillStyle = paint(`on-${segment.colour}`);
    pen.fillText(segment.id, from + 5, box.y + box.height / 2 + 0.5);
  }
  if (height < 14) letters(pen, 11.5);
}

function drawGantt() {
  const run = data.runs[scene.run];
  const lanes = run.models.length;
  const axisBelow = axisHeight();
  const { pen, width, height } = prepare(gantt, axisBelow + lanes * laneOf(0).pitch + 6);
  const { left, right } = margin(width);
  for (let gpu = 0; gpu < lanes; gpu++) {
    const lane = laneOf(gpu);
    pen.fillStyle = paint("lane");
    pen.beginPath();
    pen.roundRect(left, lane.top, width - left - right, lane.height, 4);
    pen.fill();
    pen.fillStyle = paint("soft");
    pen.textAlign = "right";
    pen.fillText(width < 560 ? `${gpu}` : `GPU ${gpu}`, left - 10, lane.top + lane.height / 2);
  }
  axis(pen, width, axisBelow, height - 4, -20);
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width - left - right, height);
  pen.clip();
  const seen = run.segments.filter((segment) => segment.end >= scene.from && segment.begin <= scene.to);
  for (const segment of seen) if (segment.phase === CUTTING) drawSegment(pen, segment, width, left);
  for (const segment of seen) if (segment.phase !== CUTTING) drawSegment(pen, segment, width, left);
  pen.globalAlpha = 1;
  if (scene.hover) outline(pen, boxOf(scene.hover, width));
  pen.restore();
  cursorLine(pen, width, axisBelow, height - 4);
  // The axis stays in sight while the lanes scroll under it.
  const top = onPaper() ? 0 : scroller.scrollTop;
  pen.fillStyle = paint("surface");
  pen.fillRect(0, top, width, axisBelow - 2);
  axis(pen, width, top + axisBelow - 6, top + axisBelow, top + axisBelow / 2);
  if (!run.segments.length) {
    pen.textAlign = "center";
    pen.fillText("This run kept no timeline.", width / 2, height / 2);
  }
  gantt.setAttribute("aria-label", `Jobs on each GPU over time, under ${run.policy}: ${run.segments.length} stretches`);
}

function outline(pen, box) {
  pen.strokeStyle = paint("ink");
  pen.lineWidth = 1.5;
  pen.strokeRect(box.x, box.y, box.width, box.height);
}

// What is under a point; jobs lie over cuts, and a point a pixel or two beside a thin one still means it.
function segmentAt(x, y) {
  const width = gantt.clientWidth;
  if (y - scroller.scrollTop < axisHeight()) return null;
  let found = null;
  for (const segment of data.runs[scene.run].segments) {
    const box = boxOf(segment, width);
    const reach = Math.max(0, (5 - box.width) / 2);
    const inside = x >= box.x - reach && x <= box.x + box.width + reach && y >= box.y && y <= box.y + box.height;
    if (inside && (found === null || found.phase === CUTTING || segment.phase !== CUTTING)) found = segment;
  }
  return found;
}

function tellSegment(segment, x, y) {
  const run = data.runs[scene.run];
  tip(segment.id ?? "GPU being cut", [
    ["where", segment.device],
    ["GPU", run.models[segment.gpu]],
    ["phase", data.phases[segment.phase]],
    ["from", words(segment.begin, 1)],
    ["to", words(segment.end, 1)],
    ["for", words(segment.end - segment.begin, 1)],
  ], x, y);
}
