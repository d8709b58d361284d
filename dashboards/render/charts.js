// Panels over time: time series, state timeline, heatmap.
'use strict';

async function seriesOf(panel, source, step) {
  const all = [];
  for (const target of panel.targets) {
    for (const s of await source.range(target.expr, step)) all.push({ name: legendOf(target, s.labels), values: s.values });
  }
  all.forEach((s, i) => {
    const fixed = configOf(panel, s.name).color;
    s.color = fixed && fixed.fixedColor ? colorOf(fixed.fixedColor) : PALETTE[i % PALETTE.length];
  });
  return all;
}

function last(values) {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null) return values[i];
  return null;
}

function greatest(values) {
  const known = values.filter((v) => v !== null);
  return known.length ? Math.max(...known) : null;
}

function nothing(panel, body) {
  body.append(element('div', { className: 'nodata', textContent: panel.fieldConfig.defaults.noValue || 'No data' }));
}

function legend(panel, all, body) {
  const o = panel.options.legend || {};
  if (o.showLegend === false) return;
  const key = (s) => element('i', { className: 'key', style: { background: s.color } });
  if (o.displayMode !== 'table') {
    const box = element('div', { className: 'legend list' });
    for (const s of all) box.append(element('span', {}, key(s), s.name));
    body.append(box);
    return;
  }
  const head = element('tr', {}, element('th', { textContent: '' }));
  const calcs = { lastNotNull: ['Last *', last], max: ['Max', greatest] };
  for (const c of o.calcs) head.append(element('th', { textContent: calcs[c][0] }));
  const table = element('table', {}, head);
  const sorted = o.sortBy === 'Max' ? [...all].sort((a, b) => greatest(b.values) - greatest(a.values)) : all;
  for (const s of sorted) {
    const tr = element('tr', {}, element('td', {}, key(s), s.name));
    const config = configOf(panel, s.name);
    for (const c of o.calcs) tr.append(element('td', { textContent: format(calcs[c][1](s.values), config.unit) }));
    table.append(tr);
  }
  body.append(element('div', { className: 'legend' }, table));
}

function box(body) {
  const chart = element('div', { className: 'chart' });
  body.prepend(chart);
  return [chart, chart.clientWidth, chart.clientHeight];
}

const AXIS = { stroke: '#4b5563', font: '11px Inter, Arial, sans-serif', grid: { stroke: '#eceef0', width: 1 }, ticks: { show: false } };

const SECONDS = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];

function clock(u, splits) {
  return splits.map((s) => new Date(s * 1000).toISOString().slice(11, s % 60 ? 19 : 16));
}

async function timeseriesPanel(panel, source, body, moments) {
  const step = panel.interval ? source.bar : source.step;
  const all = await seriesOf(panel, source, step);
  if (!all.some((s) => last(s.values) !== null)) return nothing(panel, body);
  const custom = panel.fieldConfig.defaults.custom || {};
  const unit = panel.fieldConfig.defaults.unit;
  const stacked = (custom.stacking || {}).mode === 'normal';
  const drawn = all.map((s) => s.values);
  const bands = [];
  if (stacked) {
    for (let i = 1; i < drawn.length; i++) {
      drawn[i] = drawn[i].map((v, t) => (v === null ? null : v + (drawn[i - 1][t] || 0)));
    }
    for (let i = drawn.length - 1; i > 0; i--) bands.push({ series: [i + 1, i] });
  }
  legend(panel, all, body);
  const [chart, width, height] = box(body);
  const opacity = Math.round(((custom.fillOpacity || 0) / 100) * 255).toString(16).padStart(2, '0');
  const top = Math.max(0, ...drawn.map((v) => greatest(v) || 0));
  const limits = custom.thresholdsStyle ? (panel.fieldConfig.defaults.thresholds.steps || []) : [];
  const points = [];
  for (const t of panel.targets.filter((t) => t.exemplar)) points.push(...await source.exemplars(t.expr));
  const max = panel.fieldConfig.defaults.max;
  const softMax = custom.axisSoftMax || 0;
  new uPlot({
    width, height, legend: { show: false }, cursor: { show: false }, bands,
    scales: { x: { time: true }, y: { range: (u, lo, hi) => [panel.fieldConfig.defaults.min ?? lo, max ?? nice(Math.max(top, softMax))] } },
    axes: [{ ...AXIS, values: clock, size: 26 }, { ...AXIS, size: 62, incrs: unit === 's' ? SECONDS : undefined, values: (u, splits) => splits.map((v) => format(v, unit)) }],
    series: [{}, ...all.map((s) => ({
      stroke: s.color, width: custom.lineWidth ?? 1, fill: s.color + opacity, points: { show: false },
      paths: custom.drawStyle === 'bars' ? uPlot.paths.bars({ size: [0.8, 40], align: -1 }) : undefined,
    }))],
    hooks: { draw: [(u) => { limitLines(u, limits); momentLines(u, moments); exemplarPoints(u, points); }] },
  }, [source.every(step), ...drawn], chart);
}

function nice(v) {
  if (v <= 0) return 1;
  const e = 10 ** Math.floor(Math.log10(v));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((m) => m * e).find((m) => m >= v * 1.02) || v * 1.1;
}

function stroke(u, color, dash, x0, y0, x1, y1) {
  const c = u.ctx;
  c.save();
  c.beginPath();
  c.strokeStyle = color;
  c.setLineDash(dash);
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
  c.restore();
}

function limitLines(u, steps) {
  for (const s of steps) {
    if (s.value === null || s.value === undefined) continue;
    const y = u.valToPos(s.value, 'y', true);
    if (y < u.bbox.top) continue;
    stroke(u, colorOf(s.color), [8, 6], u.bbox.left, y, u.bbox.left + u.bbox.width, y);
  }
}

function momentLines(u, moments) {
  for (const m of moments) {
    const x = u.valToPos(m.at, 'x', true);
    stroke(u, m.color + '66', [3, 3], x, u.bbox.top, x, u.bbox.top + u.bbox.height);
  }
}

function exemplarPoints(u, points) {
  u.ctx.fillStyle = '#3274d9';
  for (const [t, v] of points) {
    const x = u.valToPos(t, 'x', true);
    const y = u.valToPos(v, 'y', true);
    if (y < u.bbox.top || x < u.bbox.left) continue;
    u.ctx.save();
    u.ctx.translate(x, y);
    u.ctx.rotate(Math.PI / 4);
    u.ctx.fillRect(-2, -2, 4, 4);
    u.ctx.restore();
  }
}

// frame is an empty chart for what uPlot does not draw itself.
function frame(chart, width, height, times, labels, size, paint) {
  new uPlot({
    width, height, legend: { show: false }, cursor: { show: false },
    scales: { x: { time: true }, y: { range: [0, labels.length] } },
    axes: [
      { ...AXIS, values: clock, size: 26 },
      { ...AXIS, size, grid: { show: false }, splits: () => labels.map((_, i) => i + 0.5), values: () => labels },
    ],
    series: [{}, { stroke: '#0000', points: { show: false } }],
    hooks: { draw: [paint] },
  }, [times, times.map(() => 0)], chart);
}

async function timelinePanel(panel, source, body) {
  const all = await seriesOf(panel, source);
  if (all.length === 0) return nothing(panel, body);
  const config = panel.fieldConfig.defaults;
  const words = (config.mappings || []).map((m) => ({ name: m.options.result.text, color: colorOf(m.options.result.color) }));
  legend({ ...panel, options: { legend: { displayMode: 'list' } } }, words, body);
  const [chart, width, height] = box(body);
  const times = source.times;
  frame(chart, width, height, times, all.map((s) => s.name), 120, (u) => {
    all.forEach((s, row) => s.values.forEach((v, i) => {
      if (v === null) return;
      const x = u.valToPos(times[i], 'x', true);
      const next = u.valToPos(times[i] + source.step, 'x', true);
      const y = u.valToPos(row + 0.9, 'y', true);
      u.ctx.fillStyle = shown(v, config).color || '#999';
      u.ctx.fillRect(x, y, next - x + 1, u.valToPos(row + 0.1, 'y', true) - y);
    }));
  });
}

async function heatmapPanel(panel, source, body) {
  const found = await source.range(panel.targets[0].expr);
  if (found.length === 0) return nothing(panel, body);
  found.sort((a, b) => Number(a.labels.le.replace('+Inf', 'Infinity')) - Number(b.labels.le.replace('+Inf', 'Infinity')));
  const cells = found.map((s, i) => s.values.map((v, t) => Math.max(0, (v || 0) - (i ? found[i - 1].values[t] || 0 : 0))));
  const most = Math.max(...cells.flat());
  const unit = (panel.options.yAxis || {}).unit || panel.fieldConfig.defaults.unit;
  const labels = found.map((s) => (s.labels.le === '+Inf' ? '+Inf' : format(Number(s.labels.le), unit)));
  const [chart, width, height] = box(body);
  const times = source.times;
  frame(chart, width, height, times, labels, 62, (u) => {
    cells.forEach((line, row) => line.forEach((v, i) => {
      if (v === 0) return;
      const x = u.valToPos(times[i], 'x', true);
      const y = u.valToPos(row + 1, 'y', true);
      const strength = Math.sqrt(v / most);
      u.ctx.fillStyle = `hsl(212, 75%, ${92 - 62 * strength}%)`;
      u.ctx.fillRect(x, y, u.valToPos(times[i] + source.step, 'x', true) - x + 0.5, u.valToPos(row, 'y', true) - y - 1);
    }));
  });
}
