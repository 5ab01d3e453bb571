// One clock for the whole page: relative times tick together, once a second, on
// the server's time.
import { computed, signal } from "@preact/signals";
import { clockSkewMs } from "./session";

const browserNow = signal(Date.now());
setInterval(() => {
  browserNow.value = Date.now();
}, 1000);

/** Epoch milliseconds by the server's clock, a new value every second. */
export const now = computed(() => browserNow.value + clockSkewMs.value);
