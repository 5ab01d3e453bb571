// Data that the server does not push: lists that refresh while the page is
// visible, and requests whose answer a view waits for.
import { useEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> {
  readonly data: T | null;
  /** The last failure, kept until an answer comes; old data stays on the page meanwhile. */
  readonly error: Error | null;
  readonly loading: boolean;
  readonly reload: () => void;
}

/**
 * Loads on mount and whenever `key` changes; with `everyMs`, again after each
 * answer while the tab is visible. A late answer to an earlier key is dropped.
 */
export function useLoaded<T>(key: string, load: (signal: AbortSignal) => Promise<T>, everyMs?: number): Loaded<T> {
  const [state, setState] = useState<{ key: string; data: T | null; error: Error | null }>({ key, data: null, error: null });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;

  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const again = () => {
      if (everyMs === undefined || abort.signal.aborted) return;
      timer = window.setTimeout(() => (document.hidden ? again() : void once()), everyMs);
    };
    const once = async (): Promise<void> => {
      try {
        const data = await latest.current(abort.signal);
        if (!abort.signal.aborted) setState({ key, data, error: null });
      } catch (error) {
        if (abort.signal.aborted) return;
        const failure = error instanceof Error ? error : new Error(String(error));
        setState((old) => ({ key, data: old.key === key ? old.data : null, error: failure }));
      }
      again();
    };
    void once();
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [key, everyMs, turn]);

  const current = state.key === key ? state : { key, data: null, error: null };
  return {
    data: current.data,
    error: current.error,
    loading: current.data === null && current.error === null,
    reload: () => setTurn((n) => n + 1),
  };
}

/**
 * As `useLoaded`, for an answer that grows old with what `version` names: `everyMs` after each answer it is asked for
 * again if the version is another one by then, or null. So no change cuts off a slow answer, nor takes an old one away.
 */
export function useRenewed<T>(key: string, version: () => string | null, load: (signal: AbortSignal) => Promise<T>, everyMs: number | undefined): Loaded<T> {
  const answered = useRef<{ key: string; version: string | null; data: T } | null>(null);
  const renew = async (signal: AbortSignal): Promise<T> => {
    const asked = version();
    const last = answered.current;
    if (last !== null && asked !== null && last.key === key && last.version === asked) return last.data;
    const data = await load(signal);
    answered.current = { key, version: asked, data };
    return data;
  };
  return useLoaded(key, renew, everyMs);
}
