// Draws dashboards as pictures: their JSON, and what a Prometheus says now.
//
//   node render.js --prometheus http://127.0.0.1:9090 --out DIR
//     [--board NAME]...   default: overview, queue and workers
//     [--from UNIX]       start of the time range; default: an hour ago
//     [--top ROWS]        only what is above this row of the grid
//     [--suffix TEXT]     added to the name of the picture
//     [--rate-interval D] default: 15s
//
// It needs Chromium (CHROMIUM, or the one in the path).
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const { chromium } = require('playwright-core');

const WIDTH = 1440;

function browserPath() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const dir of process.env.PATH.split(path.delimiter)) {
    for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
      const file = path.join(dir, name);
      if (fs.existsSync(file)) return file;
    }
  }
  throw new Error("Chromium is needed: run 'apt-get install chromium', or set CHROMIUM to its path");
}

async function draw(page, opts, name) {
  const file = path.join(__dirname, '..', name + '.json');
  const board = JSON.parse(fs.readFileSync(file, 'utf8'));
  await page.goto('file://' + path.join(__dirname, 'page.html'));
  const problems = await page.evaluate(([b, o]) => window.draw(b, o), [board, {
    prometheus: opts.prometheus,
    from: Number(opts.from || Date.now() / 1000 - 3600),
    to: Date.now() / 1000,
    rateInterval: opts['rate-interval'],
    top: Number(opts.top || 0),
  }]);
  const out = path.join(opts.out, name + opts.suffix + '.png');
  await page.locator('#board').screenshot({ path: out });
  console.log(out);
  return problems;
}

async function main() {
  const { values: opts } = parseArgs({
    options: {
      prometheus: { type: 'string' },
      out: { type: 'string' },
      board: { type: 'string', multiple: true, default: ['overview', 'queue', 'workers'] },
      from: { type: 'string' },
      top: { type: 'string' },
      suffix: { type: 'string', default: '' },
      'rate-interval': { type: 'string', default: '15s' },
    },
  });
  if (!opts.prometheus || !opts.out) throw new Error('--prometheus and --out are needed');
  fs.mkdirSync(opts.out, { recursive: true });
  const browser = await chromium.launch({ executablePath: browserPath(), args: ['--no-sandbox'] });
  try {
    const page = await browser.newPage({ viewport: { width: WIDTH, height: 900 } });
    page.on('pageerror', (err) => { console.error(err); process.exitCode = 1; });
    for (const name of opts.board) {
      for (const p of await draw(page, opts, name)) {
        console.error(name + ': ' + p);
        process.exitCode = 1;
      }
    }
  } finally {
    await browser.close();
  }
}

main().catch((err) => {
  console.error(String(err.message || err));
  process.exitCode = 1;
});
