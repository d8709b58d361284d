// bench.js is BullMQ, with the flags and the output of the other contenders.
'use strict'
const { Queue, Worker } = require('bullmq')
const readline = require('node:readline')
const { parseArgs } = require('node:util')

const flag = (value) => ({ type: 'string', default: String(value) })
const { values: o } = parseArgs({
  options: {
    mode: flag(''), addr: flag(''), n: flag(1000), callers: flag(64), batch: flag(1), handlers: flag(64),
    size: flag(256), work: flag('0s'), rate: flag(1000), for: flag('0s'), warm: flag('0s'),
  },
})
const number = (name) => Number(o[name])
const ms = (name) => {
  const [, value, unit] = /^([\d.]+)(ms|s|m)$/.exec(o[name])
  return Number(value) * { ms: 1, s: 1000, m: 60000 }[unit]
}
const [host, port] = o.addr.split(':')
const connection = { host, port: Number(port), maxRetriesPerRequest: null }
const settle = 200 // ms that drain goes on after its last handler

const nowNs = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n
const stampBytes = 20
let tail = ''
for (let seed = 12345; tail.length < number('size') - stampBytes;) {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  tail += 'abcdefghijklmnopqrstuvwxyz0123456789'[(seed >>> 16) % 36]
}
const payload = () => nowNs().toString().padStart(stampBytes, '0') + tail
const sleep = (t) => new Promise((resolve) => { setTimeout(resolve, t) })

const input = readline.createInterface({ input: process.stdin })
const lines = input[Symbol.asyncIterator]()
async function start () {
  console.log('ready')
  await lines.next()
}
const spent = () => { const u = process.cpuUsage(); return u.user + u.system }
async function finish (result) {
  console.log(JSON.stringify(result))
  while (!(await lines.next()).done);
  process.exit(0)
}

const seed = Date.now()
const job = (i) => ({ name: 'task', data: { p: payload() }, opts: { removeOnComplete: true, jobId: `id-${seed}-${i}` } })
const queue = () => new Queue('jobs', { connection })

async function enqueue () {
  const q = queue()
  await q.waitUntilReady()
  await start()
  const n = number('n'); const batch = number('batch')
  const before = spent(); const began = performance.now()
  let next = 0
  const caller = async () => {
    for (;;) {
      const i = next
      next += batch
      if (i >= n) return
      const jobs = Array.from({ length: Math.min(batch, n - i) }, (_, k) => job(i + k))
      if (batch === 1) await q.add(jobs[0].name, jobs[0].data, jobs[0].opts)
      else await q.addBulk(jobs)
    }
  }
  await Promise.all(Array.from({ length: number('callers') }, caller))
  await finish({ n, seconds: (performance.now() - began) / 1000, client_us: (spent() - before) / n, last_ns: Number(nowNs()) })
}

async function drain () {
  await start()
  const n = number('n'); const work = ms('work')
  const before = spent()
  let count = 0; let first; let last; let lastNs
  await new Promise((resolve) => {
    new Worker('jobs', async () => {
      first ??= performance.now()
      if (++count === n) { last = performance.now(); lastNs = nowNs(); resolve() }
      if (work > 0) await sleep(work)
    }, { connection, concurrency: number('handlers') })
  })
  await sleep(settle)
  await finish({ n, seconds: (last - first) / 1000, client_us: (spent() - before) / n, last_ns: Number(lastNs), repeats: count - n })
}

async function serve () {
  await start()
  const latencies = []
  const from = performance.now() + ms('warm')
  let count = 0
  const before = spent(); const began = performance.now()
  const w = new Worker('jobs', async (j) => {
    count++
    if (performance.now() > from) latencies.push(Number(nowNs() - BigInt(j.data.p.slice(0, stampBytes))) / 1e6)
  }, { connection, concurrency: number('handlers') })
  await w.waitUntilReady()
  console.log('consuming')
  await lines.next()
  latencies.sort((a, b) => a - b)
  const at = (p) => latencies[Math.min(latencies.length - 1, Math.floor(p * latencies.length))] ?? 0
  await finish({
    n: count, seconds: (performance.now() - began) / 1000, client_us: (spent() - before) / Math.max(1, count),
    p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1),
  })
}

async function feed () {
  const q = queue()
  await q.waitUntilReady()
  await start()
  const before = spent(); const began = performance.now()
  const sends = []
  while (performance.now() - began < ms('for')) {
    const due = Math.floor((performance.now() - began) / 1000 * number('rate'))
    while (sends.length < due) {
      const j = job(sends.length)
      sends.push(q.add(j.name, j.data, j.opts))
    }
    await sleep(1)
  }
  await Promise.all(sends)
  await finish({ n: sends.length, seconds: (performance.now() - began) / 1000, client_us: (spent() - before) / sends.length })
}

async function tell (hold) {
  await start()
  const w = new Worker('jobs', async (j) => {
    console.log('task', j.data.p.slice(0, stampBytes), nowNs().toString())
    if (hold) await new Promise(() => {})
  }, { connection, concurrency: number('handlers') })
  await w.waitUntilReady()
  console.log('consuming')
}

const modes = { enqueue, drain, serve, feed, hold: () => tell(true), tell: () => tell(false) }
modes[o.mode]().catch((err) => {
  console.error(err)
  process.exit(1)
})
