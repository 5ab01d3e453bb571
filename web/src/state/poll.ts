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
