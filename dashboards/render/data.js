// Asking Prometheus what a dashboard asks.
'use strict';

class Source {
  constructor(opts) {
    this.opts = opts;
    this.step = Math.max(1, Math.round((opts.to - opts.from) / 300));
    // Of bars each stands for its own time, so that is also their step.
    this.bar = parseInt(opts.rateInterval, 10);
    this.vars = { __rate_interval: opts.rateInterval, __interval: this.bar + 's' };
    this.problems = [];
  }

  fill(expr) {
    return expr.replace(/\$\{?(\w+)\}?/g, (all, name) => (name in this.vars ? this.vars[name] : all));
  }

  async get(path, params) {
    const resp = await fetch(this.opts.prometheus + path + '?' + new URLSearchParams(params));
    const answer = await resp.json();
    if (answer.status !== 'success') throw new Error(answer.error + ': ' + JSON.stringify(params));
    return answer.data;
  }

  async instant(expr) {
    const data = await this.get('/api/v1/query', { query: this.fill(expr), time: this.opts.to });
    if (data.resultType === 'scalar') return [{ labels: {}, value: Number(data.result[1]) }];
    return data.result.map((r) => ({ labels: r.metric, value: Number(r.value[1]) }));
  }

  get times() { return this.every(this.step); }

  // every lists the moments of a range.
  every(step) {
    const list = [];
    for (let t = Math.ceil(this.opts.from / step) * step; t <= this.opts.to; t += step) list.push(t);
    return list;
  }

  // range evaluates an expression at each step; values that are missing are null.
  async range(expr, step = this.step) {
    const times = this.every(step);
    const data = await this.get('/api/v1/query_range', {
      query: this.fill(expr), start: times[0], end: times[times.length - 1], step,
    });
    const at = new Map(times.map((t, i) => [t, i]));
    return data.result.map((r) => {
      const values = new Array(times.length).fill(null);
      for (const [t, v] of r.values) {
        const n = Number(v);
        if (at.has(Math.round(t)) && Number.isFinite(n)) values[at.get(Math.round(t))] = n;
      }
      return { labels: r.metric, values };
    });
  }

  async exemplars(expr) {
    const data = await this.get('/api/v1/query_exemplars', {
      query: this.fill(expr), start: this.opts.from, end: this.opts.to,
    });
    return data.flatMap((d) => d.exemplars.map((e) => [Number(e.timestamp), Number(e.value)]));
  }

  // variables finds the values of the dashboard's variables, all of them chosen.
  async variables(list) {
    for (const v of list) {
      if (v.type !== 'query') continue;
      const m = /^label_values\((.+), (\w+)\)$/.exec(v.definition);
      const found = await this.get('/api/v1/label/' + m[2] + '/values', {
        'match[]': this.fill(m[1]), start: this.opts.from, end: this.opts.to,
      });
      if (found.length === 0) this.problems.push('no values for ' + v.definition);
      this.vars[v.name] = v.allValue || '(' + found.join('|') + ')';
    }
  }

  // moments are when the annotations begin.
  async moments(list) {
    const all = [];
    for (const a of list) {
      if (!a.expr) continue;
      for (const s of await this.range(a.expr)) {
        s.values.forEach((v, i) => {
          if (v !== null && (i === 0 || s.values[i - 1] === null)) all.push({ at: this.times[i], color: colorOf(a.iconColor) });
        });
      }
    }
    return all;
  }
}

// legendOf puts labels into a legend.
function legendOf(target, labels) {
  if (target.legendFormat && target.legendFormat !== '__auto') {
    return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, l) => labels[l] || '');
  }
  const rest = Object.entries(labels).filter(([k]) => k !== '__name__').map(([k, v]) => k + '="' + v + '"');
  return '{' + rest.join(', ') + '}';
}
