// A path router of the size that the page needs: one signal with the address,
// a parser beside a builder for each view, and a link that keeps the page loaded.
import { computed, signal } from "@preact/signals";

export type Route =
  | { readonly view: "home" }
  | { readonly view: "traces" }
  | { readonly view: "trace"; readonly traceId: string }
  | { readonly view: "new-run"; readonly traceId: string }
  | { readonly view: "runs" }
  | { readonly view: "run"; readonly runId: string }
  | { readonly view: "sim"; readonly runId: string; readonly simId: string }
  | { readonly view: "log"; readonly runId: string; readonly simId: string }
  | { readonly view: "kernels"; readonly runId: string; readonly simId: string }
  | { readonly view: "compare" }
  | { readonly view: "simulator" }
  | { readonly view: "not-found"; readonly path: string };

interface Address {
  readonly path: string;
  readonly query: URLSearchParams;
}

const address = signal<Address>(read());

function read(): Address {
  if (typeof location === "undefined") return { path: "/", query: new URLSearchParams() };
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

/** The view that a path names. */
export function parsePath(path: string): Route {
  const parts = path.split("/").filter((part) => part !== "").map(decode);
  const [first, id, third, simId, last] = parts;
  if (first === undefined) return { view: "home" };
  if (first === "traces") {
    if (id === undefined) return { view: "traces" };
    if (third === undefined) return { view: "trace", traceId: id };
    if (third === "new-run" && parts.length === 3) return { view: "new-run", traceId: id };
  }
  if (first === "runs") {
    if (id === undefined) return { view: "runs" };
    if (third === undefined) return { view: "run", runId: id };
    if (third === "sims" && simId !== undefined && last === undefined) return { view: "sim", runId: id, simId };
    if (third === "sims" && simId !== undefined && (last === "log" || last === "kernels") && parts.length === 5) return { view: last, runId: id, simId };
  }
  if (first === "compare" && id === undefined) return { view: "compare" };
  if (first === "simulator" && id === undefined) return { view: "simulator" };
  return { view: "not-found", path };
}

/** The path of a view; `parsePath(pathOf(route))` is the route again. */
export function pathOf(route: Route): string {
  const at = encodeURIComponent;
  switch (route.view) {
    case "home":
      return "/";
    case "trace":
      return `/traces/${at(route.traceId)}`;
    case "new-run":
      return `/traces/${at(route.traceId)}/new-run`;
    case "run":
      return `/runs/${at(route.runId)}`;
    case "sim":
      return `/runs/${at(route.runId)}/sims/${at(route.simId)}`;
    case "log":
    case "kernels":
      return `/runs/${at(route.runId)}/sims/${at(route.simId)}/${route.view}`;
    case "not-found":
      return route.path;
    default:
      return `/${route.view}`;
  }
}

/** What a part of an address says. Never throws: a hand-written one with a bare % is taken as it is. */
export function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = computed(() => parsePath(address.value.path));
export const query = computed(() => address.value.query);

export function navigate(to: string, { replace = false } = {}): void {
  const before = address.peek().path;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  address.value = read();
  if (!replace && address.value.path !== before) scrollTo(0, 0);
}

/** Changes some query parameters of the current view in place; null removes one. */
export function setQuery(changes: Record<string, string | null>): void {
  const next = new URLSearchParams(address.peek().query);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") next.delete(key);
    else next.set(key, value);
  }
  const text = next.toString();
  navigate(address.peek().path + (text === "" ? "" : `?${text}`), { replace: true });
}

/** Sets a parameter that may occur several times, such as the runs of a comparison. */
export function setRepeated(key: string, values: readonly string[]): void {
  const next = new URLSearchParams(address.peek().query);
  next.delete(key);
  for (const value of values) next.append(key, value);
  const text = next.toString();
  navigate(address.peek().path + (text === "" ? "" : `?${text}`), { replace: true });
}

export function startRouter(): void {
  addEventListener("popstate", () => {
    address.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.origin !== location.origin || link.target !== "" || link.hasAttribute("download")) return;
    if (link.pathname.startsWith("/api/") || link.hash !== "") return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}
