// Who is logged in, whether the server answers, and what time it is there. The
// token lives in this browser's storage for this origin; a link with `#token=`
// stores it and removes it from the address bar before anything else runs.
import { signal } from "@preact/signals";
import { Client } from "../api/client";
import type { Health } from "../api/types";
import { decode } from "../router";

const TOKEN_KEY = "cascade.token";

export type Access = "checking" | "token-needed" | "open";

export const access = signal<Access>("checking");
export const health = signal<Health | null>(null);
/** Why the token screen is shown, when the reason is a refusal. */
export const tokenProblem = signal<string | null>(null);
/** When the server last did not answer; null while it does. */
export const unreachableSince = signal<number | null>(null);
/** The server's clock minus this one, in ms: heartbeat ages must not depend on the browser's clock. */
export const clockSkewMs = signal(0);

let token: string | null = null;

export function currentToken(): string | null {
  return token;
}

export const client = new Client({
  token: () => token,
  onUnauthorized: () => {
    if (access.value === "open") tokenProblem.value = "The server refused the token. Use the exact CASCADE_TOKEN it was started with.";
    forget();
  },
  onReachable: (reachable, serverDate) => {
    if (reachable) unreachableSince.value = null;
    else unreachableSince.value ??= Date.now();
    const server = serverDate === null ? Number.NaN : Date.parse(serverDate);
    // The Date header has whole seconds: a smaller difference is noise.
    if (!Number.isNaN(server)) clockSkewMs.value = Math.abs(server - Date.now()) > 2000 ? server - Date.now() : 0;
  },
});

const REFUSED = "This token was refused. Check for a missing character or a space.";

/** Reads `#token=` and the stored token, asks the server whether one is needed and takes this one, and opens or asks. */
export async function startSession(): Promise<void> {
  takeTokenFromAddress();
  token ??= readStored();
  const undecided = () => access.value === "checking";
  for (let attempt = 0; undecided(); attempt += 1) {
    try {
      health.value = await client.health();
      if (health.value.auth === false) access.value = "open";
      else if (token === null) access.value = "token-needed";
      else await tryToken();
    } catch {
      // Without a verdict the token is kept, and the page says that the server is away; see unreachableSince.
      if (undecided()) await pause(Math.min(5000, 500 * 2 ** attempt));
      else tokenProblem.value = REFUSED;
    }
  }
}

/** Tries a token that somebody typed; keeps it when the server takes it. */
export async function logIn(candidate: string): Promise<void> {
  token = candidate.trim();
  try {
    await tryToken();
  } catch (error) {
    tokenProblem.value = token === null ? REFUSED : error instanceof Error ? error.message : String(error);
    token = null;
  }
}

/** Asks a cheap route with the token and opens. Throws where it was refused, which also forgets it, or nobody answered. */
async function tryToken(): Promise<void> {
  await client.gpuConfigs();
  writeStored(token);
  tokenProblem.value = null;
  access.value = "open";
}

export function logOut(): void {
  tokenProblem.value = null;
  forget();
}

function forget(): void {
  token = null;
  writeStored(null);
  access.value = "token-needed";
}

function takeTokenFromAddress(): void {
  const match = /(?:^#|&)token=([^&]*)/.exec(location.hash);
  if (match?.[1] === undefined) return;
  token = decode(match[1]);
  writeStored(token);
  history.replaceState(null, "", location.pathname + location.search);
}

function readStored(): string | null {
  try {
    return localStorage.getItem(TOKEN_KEY);
  } catch {
    return null; // storage is blocked: the token lasts as long as the page
  }
}

function writeStored(value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(TOKEN_KEY);
    else localStorage.setItem(TOKEN_KEY, value);
  } catch {
    // storage is blocked: the token lasts as long as the page
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
