// Panels that show present values: stat and table.
'use strict';

function element(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (k === 'style') Object.assign(e.style, v);
    else e[k] = v;
  }
  e.append(...children);
  return e;
}

async function statPanel(panel, source, body) {
  const config = panel.fieldConfig.defaults;
  const solid = panel.options.colorMode.startsWith('background');
  const found = await source.instant(panel.targets[0].expr);
  const known = found.filter((f) => Number.isFinite(f.value));
  let say = { text: config.noValue || 'No data', color: null };
  if (known.length > 0) say = shown(known[0].value, config);
  else if (config.noValue) say.color = colorOf(limitColor(-Infinity, config.thresholds) || 'text');
  const text = element('span', { textContent: say.text, style: { fontSize: '44px' } });
  body.append(element('div', {
    className: solid ? 'big solid' : 'big', style: { [solid ? 'background' : 'color']: say.color || '#6b7280' },
  }, text));
  const room = (body.clientWidth - 36) / text.offsetWidth;
  if (room < 1) text.style.fontSize = 44 * room + 'px';
}

// tablePanel merges the answers by their labels and orders them as the
// transformation says.
async function tablePanel(panel, source, body) {
  const lines = new Map();
  const columns = new Set();
  for (const [i, target] of panel.targets.entries()) {
    const name = panel.targets.length > 1 ? 'Value #' + target.refId : 'Value';
    for (const s of await source.instant(target.expr)) {
      const { __name__: _, ...labels } = s.labels;
      const key = JSON.stringify(Object.entries(labels).sort());
      if (!lines.has(key)) lines.set(key, { ...labels });
      lines.get(key)[name] = s.value;
      Object.keys(labels).forEach((l) => columns.add(l));
    }
    columns.add(name);
  }
  const organize = (panel.transformations.find((t) => t.id === 'organize') || { options: {} }).options;
  const order = (c) => (organize.indexByName || {})[c] ?? 99;
  const list = [...columns].filter((c) => !(organize.excludeByName || {})[c]).sort((a, b) => order(a) - order(b));
  if (lines.size === 0) {
    body.append(element('div', { className: 'nodata', textContent: panel.fieldConfig.defaults.noValue || 'No data' }));
    return;
  }
  const title = (c) => (organize.renameByName || {})[c] || c;
  const table = element('table', { className: 'rows' });
  const head = element('tr');
  for (const c of list) head.append(element('th', { textContent: title(c), className: c.startsWith('Value') ? 'num' : '' }));
  table.append(head);
  for (const line of sortedLines(panel, [...lines.values()], title)) {
    const tr = element('tr');
    for (const c of list) tr.append(cell(panel, title(c), line[c]));
    table.append(tr);
  }
  body.append(table);
  if (table.offsetHeight > body.clientHeight) source.problems.push(panel.title + ': the table is longer than the panel');
}

function sortedLines(panel, lines, title) {
  const by = (panel.options.sortBy || [])[0];
  if (!by) return lines;
  const key = (line) => Object.entries(line).find(([k]) => title(k) === by.displayName)?.[1] ?? '';
  return lines.sort((a, b) => (key(a) < key(b) ? -1 : 1) * (by.desc ? -1 : 1));
}

function cell(panel, name, value) {
  if (typeof value !== 'number') return element('td', { textContent: value || '' });
  const config = configOf(panel, name);
  const say = shown(value, config);
  const td = element('td', { className: 'num', textContent: say.text });
  const type = (config.custom.cellOptions || {}).type;
  if (say.color && type === 'color-text') Object.assign(td.style, { color: say.color, fontWeight: 600 });
  return td;
}
