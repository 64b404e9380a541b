// Time in words, and where the marks of a time axis go.

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
const STEPS_S = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 2592000, 8640000, 31536000,
];

function words(seconds, digits = 0) {
  let left = Math.abs(Number(seconds.toFixed(digits)));
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = size === 1 ? Number(left.toFixed(digits)) : Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count} ${unit}`);
  }
  return (seconds < 0 && parts.length ? "−" : "") + (parts.join(" ") || (digits ? "0 s" : "0"));
}

// The finest step whose marks stay `apart` pixels from each other.
function marks(from, to, width, apart) {
  const least = ((to - from) * apart) / Math.max(width, 1);
  let step = STEPS_S.find((candidate) => candidate >= least);
  if (!step) step = Math.ceil(least / 31536000) * 31536000;
  const found = [];
  for (let n = Math.ceil(from / step); n * step <= to; n++) found.push(n * step);
  return { at: found, digits: step < 0.1 ? 2 : step < 1 ? 1 : 0 };
}
