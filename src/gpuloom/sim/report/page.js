// What the hands do: pointer, wheel, keys, tabs, the search box.

function follow(pointer, canvas) {
  const { left, right } = margin(canvas.clientWidth);
  const x = pointer.offsetX;
  scene.cursor = x < left || x > canvas.clientWidth - right ? null : timeAt(x, canvas.clientWidth);
}

function leave() {
  Object.assign(scene, { cursor: null, hover: null });
  hideTip();
  redraw();
}

function pin(id) {
  scene.pinned = id;
  $$("find").classList.remove("missing");
  redraw();
}

function movable(canvas, tell) {
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, from: scene.from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    follow(event, canvas);
    if (drag && (drag.moved || Math.abs(event.clientX - drag.x) > 4)) {
      drag.moved = true;
      hideTip();
      const { left, right } = margin(canvas.clientWidth);
      const perPixel = (scene.to - scene.from) / (canvas.clientWidth - left - right);
      pan(drag.from - scene.from - (event.clientX - drag.x) * perPixel);
    } else tell(event);
    redraw();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved && canvas === gantt) {
      const hit = segmentAt(event.offsetX, event.offsetY);
      pin(hit?.id && hit.id !== scene.pinned ? hit.id : null);
    }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event.offsetX, canvas.clientWidth)));
  canvas.addEventListener("wheel", (event) => {
    // A plain wheel scrolls the page, as everywhere.
    const turn = Math.max(-60, Math.min(60, event.deltaY));
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(turn / 150), timeAt(event.offsetX, canvas.clientWidth));
    else if (sideways) pan((event.deltaX / canvas.clientWidth) * (scene.to - scene.from));
    else return;
    event.preventDefault();
  }, { passive: false });
}

movable(gantt, (event) => {
  scene.hover = segmentAt(event.offsetX, event.offsetY);
  if (scene.hover) tellSegment(scene.hover, event.clientX, event.clientY);
  else hideTip();
});
curveCanvases.forEach((canvas, index) => movable(canvas, (event) => {
  if (scene.cursor === null) hideTip();
  else tellCurve(index, event.clientX, event.clientY);
}));

// From slice to slice with the arrow keys: the same outline and words that a pointer gets.
function step(by) {
  const { segments } = data.runs[scene.run];
  const shown = segments.filter(({ id }) => id !== null && (scene.pinned === null || id === scene.pinned));
  if (!shown.length) return;
  const at = shown.indexOf(scene.hover);
  const next = shown[Math.min(Math.max(at < 0 ? (by > 0 ? 0 : shown.length - 1) : at + by, 0), shown.length - 1)];
  scene.hover = next;
  if (next.begin < scene.from || next.begin > scene.to) pan(next.begin - (scene.from + scene.to) / 2);
  const box = boxOf(next, gantt.clientWidth);
  const [above, below] = [scroller.scrollTop + axisHeight(), scroller.scrollTop + scroller.clientHeight];
  if (box.y < above || box.y + box.height > below) scroller.scrollTop = box.y - axisHeight() - 8;
  const place = gantt.getBoundingClientRect();
  tellSegment(next, place.left + Math.max(box.x, 60), place.top + box.y + box.height);
  redraw();
}

gantt.addEventListener("keydown", (event) => {
  const span = scene.to - scene.from;
  const acts = {
    ArrowLeft: () => pan(-span / 6),
    ArrowRight: () => pan(span / 6),
    ArrowUp: () => step(-1),
    ArrowDown: () => step(1),
    "+": () => zoom(0.6),
    "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6),
    0: () => look(whole.from, whole.to),
    Home: () => look(whole.from, whole.to),
    Enter: () => pin(scene.hover?.id ?? null),
    Escape: () => (pin(null), leave()),
  };
  if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  acts[event.key]();
});
gantt.addEventListener("blur", leave);
scroller.addEventListener("scroll", redraw);

$$("zoom-in").addEventListener("click", () => zoom(0.6));
$$("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
$$("zoom-all").addEventListener("click", () => look(whole.from, whole.to));

$$("find").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  const ids = data.runs.flatMap((run) => run.jobs);
  const lower = (id) => id.toLowerCase();
  const found = wanted && (ids.find((id) => lower(id) === wanted) ?? ids.find((id) => lower(id).includes(wanted)));
  pin(found || null);
  event.target.classList.toggle("missing", Boolean(wanted && !found));
});

const tabs = [...document.querySelectorAll("[role=tab]")];
function choose(at) {
  scene.run = at;
  scene.hover = null;
  tabs.forEach((tab, index) => {
    tab.setAttribute("aria-selected", String(index === at));
    tab.tabIndex = index === at ? 0 : -1;
  });
  hideTip();
  redraw();
}
tabs.forEach((tab, at) => {
  tab.addEventListener("click", () => choose(at));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + tabs.length) % tabs.length;
    choose(next);
    tabs[next].focus();
  });
});

function repaint() {
  paints = {};
  for (const phase of Object.keys(hatches)) delete hatches[phase];
  draw();
}
// A browser prints what the canvases hold, so they are drawn for paper before it does.
function paper(on) {
  document.documentElement.classList.toggle("on-paper", on);
  leave();
  repaint();
}

if (data.runs.length) {
  $$("charts").hidden = false;
  scene.charts = [drawGantt, ...curveCanvases.map((_, index) => () => drawCurve(index))];
  choose(Math.max(tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true"), 0));
  new ResizeObserver(redraw).observe($$("charts"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
}
