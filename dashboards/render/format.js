// Values as Grafana shows them: units, thresholds, words, colours.
'use strict';

const COLORS = {
  green: '#56a64b', orange: '#ff9830', red: '#e02f44', blue: '#3274d9', purple: '#a352cc',
  'light-blue': '#8ab8ff', 'dark-red': '#9b1c2c', yellow: '#e0b400', text: '#24292e',
};
const PALETTE = [
  '#73bf69', '#e0b400', '#5794f2', '#ff9830', '#f2495c', '#37b0c9', '#b877d9', '#705da0',
  '#37872d', '#9d7d00', '#1f60c4', '#fa6400', '#c4162a', '#1f78c1', '#8f3bb8', '#584477',
];

function colorOf(name) { return COLORS[name] || name; }

// digits keeps about three significant ones.
function digits(v) {
  const a = Math.abs(v);
  if (a === 0) return '0';
  const places = a >= 100 ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : Math.min(4, 2 - Math.floor(Math.log10(a)));
  return String(Number(v.toFixed(places)));
}

function scaled(v, steps) {
  for (const [from, unit] of steps) {
    if (Math.abs(v) >= from) return digits(v / from) + unit;
  }
  return digits(v);
}

function format(v, unit) {
  if (v === null || v === undefined || Number.isNaN(v)) return '-';
  const thousands = [[1e9, ' Bil'], [1e6, ' Mil'], [1e3, ' K']];
  switch (unit) {
    case 's':
      if (v !== 0 && Math.abs(v) < 1e-3) return digits(v * 1e6) + ' µs';
      if (v !== 0 && Math.abs(v) < 1) return digits(v * 1e3) + ' ms';
      return scaled(v, [[86400, ' days'], [3600, ' hours'], [60, ' mins']]) + (Math.abs(v) < 60 ? ' s' : '');
    case 'percentunit': return digits(v * 100) + '%';
    case 'bytes': return scaled(v, [[2 ** 30, ' GiB'], [2 ** 20, ' MiB'], [2 ** 10, ' KiB']]) + (Math.abs(v) < 1024 ? ' B' : '');
    case 'cps': return scaled(v, thousands) + (Math.abs(v) < 1e3 ? ' c/s' : ' c/s');
    case 'ops': return digits(v) + ' ops/s';
    case 'short': return scaled(v, thousands);
    default:
      if (unit && unit.startsWith('suffix:')) return digits(v) + ' ' + unit.slice(7).trim();
      return digits(v);
  }
}

// worded is the first mapping that a value falls into.
function worded(v, mappings) {
  for (const m of mappings || []) {
    if (m.type === 'range') {
      const { from, to, result } = m.options;
      if ((from === null || from === undefined || v >= from) && (to === null || to === undefined || v <= to)) return result;
    } else if (m.type === 'value' && m.options[String(v)]) {
      return m.options[String(v)];
    }
  }
  return null;
}

function limitColor(v, thresholds) {
  let color = null;
  for (const s of (thresholds && thresholds.steps) || []) {
    if (s.value === null || s.value === undefined || v >= s.value) color = s.color;
  }
  return color;
}

// shown is the text and colour of one value under a field's configuration.
function shown(v, config) {
  const word = worded(v, config.mappings);
  const color = (word && word.color) || limitColor(v, config.thresholds);
  return { text: word && word.text ? word.text : format(v, config.unit), color: color && colorOf(color) };
}

// configOf merges the defaults of a panel with its overrides by name.
function configOf(panel, name) {
  const config = { ...panel.fieldConfig.defaults, custom: { ...(panel.fieldConfig.defaults.custom || {}) } };
  for (const o of panel.fieldConfig.overrides || []) {
    const m = o.matcher;
    const hit = m.id === 'byName' ? m.options === name : m.id === 'byRegexp' && new RegExp(m.options.replace(/^\/|\/$/g, '')).test(name);
    if (!hit) continue;
    for (const p of o.properties) {
      if (p.id.startsWith('custom.')) config.custom[p.id.slice(7)] = p.value;
      else config[p.id] = p.value;
    }
  }
  return config;
}
