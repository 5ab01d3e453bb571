// A stand-in for the api while developing the dashboard: the same routes with
// invented data, one of its runs streaming 2,000 events a second over 320 sims.
//   node dev/fake-server.mjs            PORT=8787 TOKEN=dev-token NO_AUTH=1 EMPTY=1 RATE=2000 FILL=0
// FILL: kernels that each sim of the large run has already finished at the start.
// It also serves dist/ as the api does. POST /__dev/drop ends every event stream.
import { createReadStream, existsSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { gzipSync } from "node:zlib";
import { CONFIGS, TRACES, iso, kernelName, kernelStat, realNs, scenario, stepTimeline, traceDetail } from "./fake-data.mjs";

const PORT = Number(process.env.PORT ?? 8787);
const TOKEN = process.env.TOKEN ?? "dev-token";
const NO_AUTH = process.env.NO_AUTH === "1";
const EMPTY = process.env.EMPTY === "1";
const EVENTS_PER_SECOND = Number(process.env.RATE ?? 2000);
const DIST = new URL("../dist/", import.meta.url).pathname;
const TICK_MS = 50;

const runs = new Map();
const streams = new Map();
let serial = 0;
const traces = EMPTY ? [] : TRACES;
const hex = () => (0x1047ddb00000 + 7919 * ++serial).toString(16);

function addRun(id, traceId, entries, over = {}) {
  const trace = TRACES.find((t) => t.id === traceId);
  const createdAt = Date.now() - (over.ageMs ?? 0);
  const sims = entries.flatMap(({ gpu_config, count }) => Array.from({ length: count }, (_, replica) => ({
    id: over.simId ?? `sim-${hex()}`, run_id: id, gpu_config, replica, state: "pending", error: null, launcher_ref: null, created_at: iso(createdAt),
    started_at: null, finished_at: null, last_heartbeat_at: null, exit_code: null, kernels_done: 0, kernels_total: over.kernelsTotal ?? trace.kernel_count,
    current_kernel: null, latest: { gpu_tot_sim_cycle: null, gpu_tot_sim_insn: null, gpu_tot_ipc: null, sim_rate_ips: null }, log_tail: [],
    ...(over.engine === undefined ? {} : { engine: over.engine, provenance: null }),
  })));
  const run = { id, trace, entries, createdAt, sample: over.sample ?? false, replay: over.replay ?? false, sims, kernels: new Map(sims.map((s) => [s.id, []])), live: over.live ?? false, kernelsMade: over.kernelsMade };
  runs.set(id, run);
  return run;
}

function step(run, sim) {
  const stat = kernelStat(sim, sim.kernels_done, run.trace.id);
  run.kernels.get(sim.id).push(stat);
  sim.kernels_done += 1;
  sim.current_kernel = kernelName(run.trace.id, sim.kernels_done);
  const cycles = (sim.latest.gpu_tot_sim_cycle ?? 0) + stat.gpu_sim_cycle;
  const insn = (sim.latest.gpu_tot_sim_insn ?? 0) + stat.gpu_sim_insn;
  sim.latest = { gpu_tot_sim_cycle: cycles, gpu_tot_sim_insn: insn, gpu_tot_ipc: insn / cycles, sim_rate_ips: 480_000 + (insn % 60_000) };
  return stat;
}

function start(sim) {
  sim.state = "running";
  sim.started_at = sim.last_heartbeat_at = iso(Date.now());
  sim.launcher_ref = String(64000 + serial++);
}

function end(sim, state, error = null, exitCode = state === "succeeded" ? 0 : 134) {
  sim.state = state;
  sim.error = error;
  sim.exit_code = state === "cancelled" ? null : exitCode;
  sim.finished_at = iso(Date.now());
}

function finishNow(run, { failed = [] } = {}) {
  run.sims.forEach((sim, i) => {
    start(sim);
    sim.started_at = iso(run.createdAt + 2000);
    const total = run.kernelsMade ?? sim.kernels_total;
    while (sim.kernels_done < (failed.includes(i) ? total / 3 : total)) step(run, sim);
    sim.log_tail = logLines(run, sim, 20);
    if (failed.includes(i)) end(sim, "failed", "Accel-Sim stopped: GPGPU-Sim uArch: ERROR ** deadlock detected: last writeback core 3 @ cycle 74211");
    else end(sim, "succeeded");
    sim.finished_at = sim.last_heartbeat_at = iso(run.createdAt + 190_000 + i * 800);
  });
}

function logLines(run, sim, count) {
  const stats = run.kernels.get(sim.id);
  const lines = [];
  for (const s of stats.slice(-Math.ceil(count / 10))) {
    lines.push(`launching kernel name: ${s.kernel_name} uid: ${s.kernel_launch_uid}`, `kernel_name = ${s.kernel_name}`, `kernel_launch_uid = ${s.kernel_launch_uid}`, `gpu_sim_cycle = ${s.gpu_sim_cycle}`, `gpu_sim_insn = ${s.gpu_sim_insn}`, `gpu_ipc = ${s.gpu_ipc.toFixed(4)}`, "L2_BW  =      15.0194 GB/Sec", "Total_core_cache_stats_breakdown[GLOBAL_ACC_R][HIT] = 4093", "gpgpu_simulation_time = 0 days, 0 hrs, 0 min, 3 sec (3 sec)", "gpgpu_simulation_rate = 510774 (inst/sec)");
  }
  return lines.slice(-count);
}

if (!EMPTY) {
  finishNow(addRun("run-sample-opt125m-h100-e2e", "sample__facebook_opt-125m__h100-e2e", [{ gpu_config: "SM90_H100", count: 1 }], { sample: true, ageMs: 86400e3 * 3, simId: "sim-sample-opt125m-h100-e2e" }));
  finishNow(addRun("run-sample-opt125m-a100-e2e", "sample__facebook_opt-125m__a100-e2e", [{ gpu_config: "SM80_A100", count: 1 }], { sample: true, ageMs: 86400e3 * 3, simId: "sim-sample-opt125m-a100-e2e" }));
  finishNow(addRun("run-210d75c008c4", "demo", [{ gpu_config: "SM86_RTX3070", count: 2 }], { ageMs: 7000e3, kernelsMade: 6 }));
  finishNow(addRun("run-3a77c0ffee01", "sample__facebook_opt-125m__h100-e2e", [{ gpu_config: "SM90_H200", count: 1 }], { replay: true, engine: "replay", ageMs: 5000e3 }));
  finishNow(addRun("run-e571a7e00001", "opt125m-h100 run 2", [{ gpu_config: "SM90_H100", count: 1 }, { gpu_config: "SM90_H200", count: 1 }], { engine: "estimate", ageMs: 2500e3 }));
  finishNow(addRun("run-7b1d3c9a5e2f", "opt125m-h100 run 2", [{ gpu_config: "SM90_H100", count: 3 }, { gpu_config: "SM90_H200", count: 3 }, { gpu_config: "SM90_H100_HALF_L2", count: 3 }], { engine: "accel-sim", ageMs: 1500e3 }), { failed: [7] });
  const mixed = addRun("run-b42541e17665", "opt125m-h100 run 2", [{ gpu_config: "SM90_H100", count: 4 }, { gpu_config: "SM90_H200", count: 2 }], { engine: "accel-sim", ageMs: 240e3, live: true });
  mixed.sims.slice(0, 5).forEach(start);
  mixed.slow = true;
  const big = addRun("run-64x5", "opt125m-h100 run 2", ["SM90_H100", "SM90_H200", "SM90_H100_HALF_L2", "SM90_H100_PCIE", "SM90_H200_SLOW_HBM"].map((gpu_config) => ({ gpu_config, count: 64 })), { engine: "accel-sim", ageMs: 5e3, live: true, kernelsTotal: 712 });
  big.sims.slice(0, 300).forEach((sim) => {
    start(sim);
    for (let i = 0; i < Number(process.env.FILL ?? 0); i += 1) step(big, sim);
  });
  big.full = true;
}

const stateOf = (sims) => {
  const has = (s) => sims.some((sim) => sim.state === s);
  if (sims.some((sim) => ["pending", "launching", "running", "lost"].includes(sim.state))) return "active";
  if (sims.every((sim) => sim.state === "succeeded")) return "succeeded";
  return has("succeeded") ? "partial" : has("cancelled") ? "cancelled" : "failed";
};
const summary = (run) => {
  const sim_counts = {};
  for (const sim of run.sims) sim_counts[sim.state] = (sim_counts[sim.state] ?? 0) + 1;
  return { id: run.id, trace_id: run.trace.id, created_at: iso(run.createdAt), state: stateOf(run.sims), entries: run.entries, sim_counts, sample: run.sample, replay: run.replay };
};
const detail = (run) => ({ ...summary(run), trace: run.trace, sims: run.sims });
const allKernels = (run) => run.sims.flatMap((sim) => run.kernels.get(sim.id));

function send(run, event) {
  const frame = `data: ${JSON.stringify(event)}\n\n`;
  for (const response of streams.get(run.id) ?? []) response.write(frame);
}

/** One chunk of one sim: log, perhaps a kernel, then the sim, as the api orders them. */
function advance(run, sim) {
  let sent = 1;
  sim.last_heartbeat_at = iso(Date.now());
  if (Math.random() < (run.full ? 0.4 : 0.9)) {
    const stat = step(run, sim);
    sent += 1;
    const lines = logLines(run, sim, 10);
    sim.log_tail = [...sim.log_tail, ...lines].slice(-20);
    send(run, { type: "log", sim_id: sim.id, lines });
    send(run, { type: "kernel", stat: { ...stat, stats: { gpu_sim_cycle: stat.gpu_sim_cycle, filler: "x".repeat(run.full ? 200 : 20_000) } } });
    sent += 1;
  }
  if (sim.kernels_done >= sim.kernels_total) end(sim, "succeeded");
  send(run, { type: "sim", sim });
  return sent;
}

let turn = 0;
setInterval(() => {
  for (const run of runs.values()) {
    if (!run.live) continue;
    const idle = (streams.get(run.id)?.size ?? 0) === 0;
    if (run.full && idle) continue;
    if (run.slow && turn % 6 !== 0) continue;
    let budget = run.full ? (EVENTS_PER_SECOND * TICK_MS) / 1000 : run.sims.length;
    for (const sim of run.sims) {
      if (sim.state === "pending" && Math.random() < 0.02) { sim.state = "launching"; send(run, { type: "sim", sim }); }
      else if (sim.state === "launching" && Math.random() < 0.1) { start(sim); send(run, { type: "sim", sim }); }
    }
    const active = run.sims.filter((sim) => sim.state === "running");
    if (active.length === 0 && run.sims.every((s) => s.finished_at !== null)) run.live = false;
    for (let i = 0; i < active.length && budget > 0; i += 1) budget -= advance(run, active[(i + turn * 33) % active.length]);
  }
  turn += 1;
}, TICK_MS);
setInterval(() => {
  for (const set of streams.values()) for (const response of set) response.write(": keepalive\n\n");
}, 15_000);
setInterval(() => {
  for (const t of traces) if (t.state === "uploading") { t.kernel_count += 1; t.bytes += 31e6; t.updated_at = iso(Date.now()); }
}, 2000);

function comparison(run) {
  const configs = [...new Set(run.entries.map((e) => e.gpu_config))];
  const longest = Math.max(...run.sims.map((s) => run.kernels.get(s.id).length));
  const median = (values) => {
    const sorted = values.toSorted((a, b) => a - b);
    return sorted.length === 0 ? null : (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
  };
  const rows = Array.from({ length: longest }, (_, i) => ({
    kernel_index: i, kernel_name: kernelName(run.trace.id, i), real_ns: run.trace.has_real_timing ? realNs(run.trace.id, i) : null,
    sim_ns: Object.fromEntries(configs.map((c) => [c, median(run.sims.filter((s) => s.gpu_config === c).map((s) => run.kernels.get(s.id)[i]?.sim_time_ns).filter((v) => v !== undefined))])),
  }));
  return { has_real_timing: run.trace.has_real_timing, configs, rows };
}

function fileBody(sim, run, name) {
  if (name === "exit-status.txt") return Buffer.from("0\n");
  if (name === "accelsim.log.gz") return gzipSync(logLines(run, sim, 900).join("\n"));
  return Buffer.from(["uid,name,gpu_sim_cycle,gpu_sim_insn,ipc", ...run.kernels.get(sim.id).map((k) => `${k.kernel_launch_uid},${k.kernel_name},${k.gpu_sim_cycle},${k.gpu_sim_insn},${k.gpu_ipc}`)].join("\n"));
}
const TYPES = { "accelsim.log.gz": "application/gzip", "exit-status.txt": "text/plain", "kernel-stats.csv": "text/csv" };
const files = (run, sim) => sim.state === "succeeded" || sim.state === "failed"
  ? Object.entries(TYPES).map(([name, content_type]) => ({ name, size: fileBody(sim, run, name).length, content_type, created_at: sim.finished_at })) : [];

function perfetto(run) {
  return { traceEvents: run.sims.flatMap((sim, tid) => {
    let ts = 0;
    return run.kernels.get(sim.id).map((k) => { const e = { ph: "X", pid: 1, tid: tid + 1, name: `k${k.kernel_index + 1}`, ts, dur: k.sim_time_ns / 1000 }; ts += e.dur; return e; });
  }), displayTimeUnit: "ns", otherData: { run_id: run.id } };
}

function json(response, status, body, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}
const missing = (response, what) => json(response, 404, { detail: `${what} not found` });
const attach = (name) => ({ "content-disposition": `attachment; filename="${name}"` });

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return JSON.parse(Buffer.concat(parts).toString() || "null");
}

async function createRun(request, response) {
  const body = await bodyOf(request);
  const trace = traces.find((t) => t.id === body.trace_id);
  if (!trace) return missing(response, `trace ${body.trace_id}`);
  if (trace.sample) return json(response, 409, { detail: `trace ${trace.id} is a sample: its instruction traces are not bundled` });
  if (trace.state !== "ready") return json(response, 409, { detail: `trace ${trace.id} is ${trace.state}, not ready` });
  const wrong = body.entries.find((e) => CONFIGS.find((c) => c.name === e.gpu_config)?.arch !== trace.trace_gpu_arch);
  if (wrong) return json(response, 422, { detail: `${wrong.gpu_config} does not match trace ${trace.id} (${trace.trace_gpu_arch})` });
  json(response, 201, detail(addRun(`run-${hex()}`, trace.id, body.entries, { engine: "accel-sim", live: true, kernelsTotal: Math.min(trace.kernel_count, 60) })));
}

function runRoute(request, response, run, what) {
  if (what === undefined) return json(response, 200, detail(run));
  if (what === "cancel") {
    for (const sim of run.sims) if (sim.finished_at === null) { end(sim, "cancelled"); send(run, { type: "sim", sim }); }
    return json(response, 200, detail(run));
  }
  if (what === "kernels") return json(response, 200, allKernels(run));
  if (what === "comparison") return json(response, 200, comparison(run));
  if (what === "step-timelines") return json(response, 200, run.trace.has_step_timeline ? run.sims.filter((s) => s.state === "succeeded").map((s) => stepTimeline(s, s.gpu_config === run.trace.real_gpu_config)) : []);
  if (what === "files") return json(response, 200, run.sims.flatMap((s) => files(run, s).map((f) => ({ ...f, sim_id: s.id, gpu_config: s.gpu_config, replica: s.replica }))));
  if (what === "perfetto") return json(response, 200, perfetto(run), attach(`${run.id}-perfetto.json`));
  if (what === "results") return json(response, 200, { run: summary(run), trace: traceDetail(run.trace), sims: [], comparison: comparison(run) }, attach(`${run.id}-results.json`));
  if (what !== "events") return json(response, 404, { detail: "Not Found" });
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no" });
  response.write(`data: ${JSON.stringify({ type: "snapshot", run: detail(run), kernels: allKernels(run) })}\n\n`);
  const set = streams.get(run.id) ?? new Set();
  streams.set(run.id, set.add(response));
  request.on("close", () => set.delete(response));
}

function simRoute(response, id, what, name) {
  const run = [...runs.values()].find((r) => r.sims.some((s) => s.id === id));
  const sim = run?.sims.find((s) => s.id === id);
  if (!run || !sim) return missing(response, `sim ${id}`);
  if (what === "log") {
    response.writeHead(200, { "content-type": "text/plain; charset=utf-8", ...attach(`${id}.log`) });
    return response.end(`${logLines(run, sim, 1e6).join("\n")}\n`);
  }
  if (what === "results") return json(response, 200, { sim, kernels: run.kernels.get(id), totals: sim.latest }, attach(`${id}-results.json`));
  if (what === "files" && name === undefined) return json(response, 200, files(run, sim));
  if (what === "files" && name in TYPES) {
    response.writeHead(200, { "content-type": TYPES[name], ...attach(name) });
    return response.end(fileBody(sim, run, name));
  }
  return json(response, 404, { detail: `sim ${id} has no file '${name}'` });
}

const MIME = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const CSP = "default-src 'self'; connect-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'";
function serveStatic(response, path) {
  const file = join(DIST, normalize(path));
  const found = extname(path) !== "" && existsSync(file) ? file : join(DIST, "index.html");
  if (!existsSync(found)) return json(response, 404, { detail: "run npm run build first" });
  response.writeHead(200, { "content-type": MIME[extname(found)] ?? "application/octet-stream", "content-security-policy": CSP });
  createReadStream(found).pipe(response);
}

createServer(async (request, response) => {
  const url = new URL(request.url, "http://fake");
  const parts = url.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  if (url.pathname === "/__dev/drop") {
    for (const set of streams.values()) for (const stream of set) stream.end();
    return json(response, 200, { dropped: true });
  }
  if (parts[0] !== "api") return serveStatic(response, url.pathname);
  const [, kind, id, what, name] = parts;
  if (kind === "health") return json(response, 200, { ok: true, auth: !NO_AUTH, workspace: "acme-lab", s3_endpoint: "http://127.0.0.1:9020" });
  if (!NO_AUTH && request.headers.authorization !== `Bearer ${TOKEN}` && url.searchParams.get("token") !== TOKEN) {
    return json(response, 401, { detail: "missing or wrong token" }, { "www-authenticate": "Bearer" });
  }
  if (kind === "gpu-configs") return json(response, 200, CONFIGS);
  if (kind === "traces" && id === undefined) return json(response, 200, traces);
  if (kind === "traces") {
    const trace = traces.find((t) => t.id === id);
    return trace ? json(response, 200, traceDetail(trace)) : missing(response, `trace ${id}`);
  }
  if (kind === "runs" && id === undefined) return request.method === "POST" ? createRun(request, response) : json(response, 200, [...runs.values()].toSorted((a, b) => b.createdAt - a.createdAt).map(summary));
  if (kind === "runs") return runs.has(id) ? runRoute(request, response, runs.get(id), what) : missing(response, `run ${id}`);
  if (kind === "sims") return simRoute(response, id, what, name);
  if (kind === "scenarios") {
    const body = await bodyOf(request);
    if (!(body.prompt_tokens > 0)) return json(response, 422, { detail: "prompt_tokens must be a positive integer" });
    if (body.prompt_tokens + body.output_tokens > 2048) return json(response, 422, { detail: `prompt ${body.prompt_tokens} + output ${body.output_tokens} tokens pass the model's limit of 2048` });
    return setTimeout(() => json(response, 200, scenario(body)), 400);
  }
  return json(response, 404, { detail: "Not Found" });
}).listen(PORT, () => console.log(`fake api on http://127.0.0.1:${PORT} token ${NO_AUTH ? "(none)" : TOKEN}`));
