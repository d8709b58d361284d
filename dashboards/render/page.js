// Lays a dashboard out on Grafana's grid of 24 columns and draws its panels.
'use strict';

const CELL = 30;
const GAP = 8;

const KINDS = {
  stat: statPanel, table: tablePanel, timeseries: timeseriesPanel, 'state-timeline': timelinePanel, heatmap: heatmapPanel,
};

// draw returns what went wrong: queries that failed, panels of no known kind.
window.draw = async function draw(board, opts) {
  const source = new Source(opts);
  await source.variables(board.templating.list);
  const moments = await source.moments(board.annotations.list);
  const root = document.getElementById('board');
  const time = (t) => new Date(t * 1000).toISOString().slice(11, 19);
  root.append(element('div', { id: 'head' },
    element('b', { textContent: board.title }),
    element('span', { textContent: time(opts.from) + ' to ' + time(opts.to) })));
  const grid = element('div', { id: 'grid' });
  root.append(grid);
  const column = (grid.clientWidth + GAP) / 24;
  let bottom = 0;
  for (const panel of board.panels) {
    const g = panel.gridPos;
    if (opts.top && g.y + g.h > opts.top) continue;
    bottom = Math.max(bottom, g.y + g.h);
    const top = g.y * (CELL + GAP) + 'px';
    if (panel.type === 'row') {
      grid.append(element('div', { className: 'row', textContent: panel.title, style: { top } }));
      continue;
    }
    const body = element('div', { className: 'body' });
    grid.append(element('div', {
      className: 'panel',
      style: { top, left: g.x * column + 'px', width: g.w * column - GAP + 'px', height: g.h * (CELL + GAP) - GAP + 'px' },
    }, element('h3', { textContent: panel.title }), body));
    try {
      if (!KINDS[panel.type]) throw new Error('no such kind of panel: ' + panel.type);
      await KINDS[panel.type](panel, source, body, moments);
    } catch (err) {
      source.problems.push(panel.title + ': ' + err.message);
    }
  }
  grid.style.height = bottom * (CELL + GAP) + 'px';
  return source.problems;
};
