// Hands a run's trace to ui.perfetto.dev in a new tab, without a file in between:
// the page is asked PING until it answers PONG, then gets the buffer.
import { client } from "./session";

const PERFETTO = "https://ui.perfetto.dev";
const PING_EVERY_MS = 100;
/** A cold load of the Perfetto UI takes seconds; past this it is blocked or offline. */
const ANSWER_WITHIN_MS = 30_000;

/** Must run inside a click: browsers open a tab only then. Throws with a reason for the reader. */
export async function openInPerfetto(runId: string): Promise<void> {
  const tab = window.open(PERFETTO);
  if (tab === null) throw new Error("The browser blocked the new tab. Allow pop-ups for this page, or download the Perfetto JSON and open it at ui.perfetto.dev.");
  const response = await client.open(client.perfettoPath(runId));
  const buffer = await response.arrayBuffer();
  await answered(tab);
  const title = `Cascade ${runId}`;
  tab.postMessage({ perfetto: { buffer, title, fileName: `${runId}-perfetto.json` } }, PERFETTO, [buffer]);
}

function answered(tab: Window): Promise<void> {
  return new Promise((resolve, reject) => {
    const finish = (done: () => void) => {
      window.clearInterval(ping);
      window.clearTimeout(limit);
      window.removeEventListener("message", listen);
      done();
    };
    const listen = (event: MessageEvent) => {
      if (event.origin === PERFETTO && event.data === "PONG") finish(resolve);
    };
    window.addEventListener("message", listen);
    const ping = window.setInterval(() => tab.postMessage("PING", PERFETTO), PING_EVERY_MS);
    const limit = window.setTimeout(() => finish(() => reject(new Error("ui.perfetto.dev did not answer. Download the Perfetto JSON and open it there."))), ANSWER_WITHIN_MS);
  });
}
