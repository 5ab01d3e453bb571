// Fails the build when the first load's JavaScript passes its budget.
// "First load" is the entry script plus everything index.html preloads.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const BUDGET_BYTES = 150_000;
const out = process.env["DASHBOARD_OUT"] ?? "dist";
const html = readFileSync(`${out}/index.html`, "utf8");
const scripts = [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+\.js)"/g)].map((m) => m[1]);
const sizes = scripts.map((path) => [path, gzipSync(readFileSync(`${out}${path}`)).length]);
const total = sizes.reduce((sum, [, size]) => sum + size, 0);
for (const [path, size] of sizes) console.log(`${path} ${size} bytes gzipped`);
console.log(`first load: ${total} of ${BUDGET_BYTES} bytes`);
if (total > BUDGET_BYTES) {
  console.error("The first load is over its budget: load the heavy part with import().");
  process.exit(1);
}
