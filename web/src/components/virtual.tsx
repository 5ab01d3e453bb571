// A long list of equal rows, of which only the visible ones exist.
import type { AriaRole, ComponentChildren, TargetedEvent } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { scrollTo, sliceOf } from "../model/windowing";

interface Props {
  readonly count: number;
  readonly rowPx: number;
  readonly heightPx: number;
  readonly row: (index: number) => ComponentChildren;
  readonly label: string;
  readonly header?: ComponentChildren;
  /** A row to bring into view; a new `at` asks again for the same row. */
  readonly reveal?: { readonly index: number; readonly at: number } | null;
  /** Keep the end in view while rows are added, as long as the reader is there. */
  readonly follow?: boolean;
  readonly class?: string;
  readonly role?: AriaRole;
  readonly testid?: string;
}

export function VirtualList({ count, rowPx, heightPx, row, label, header, reveal = null, follow = false, class: extra = "", role = "table", testid }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [scrollPx, setScrollPx] = useState(0);
  const [viewPx, setViewPx] = useState(heightPx);
  const atEnd = useRef(true);

  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const measure = () => setViewPx(element.clientHeight);
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);

  useEffect(() => {
    if (reveal !== null && box.current !== null) box.current.scrollTop = scrollTo(reveal.index, count, rowPx, viewPx);
  }, [reveal?.index, reveal?.at]);

  useLayoutEffect(() => {
    if (follow && atEnd.current && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [count, follow]);

  const onScroll = (event: TargetedEvent<HTMLDivElement>) => {
    const element = event.currentTarget;
    atEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 2 * rowPx;
    setScrollPx(element.scrollTop);
  };

  const slice = sliceOf(count, rowPx, viewPx, scrollPx);
  const rows: ComponentChildren[] = [];
  for (let index = slice.first; index < slice.last; index += 1) rows.push(row(index));
  return (
    <div class={`virtual ${extra}`} ref={box} onScroll={onScroll} style={{ maxHeight: `${heightPx}px` }} role={role} aria-label={label} aria-rowcount={role === "table" ? count + (header === undefined ? 0 : 1) : undefined} tabIndex={0} data-testid={testid}>
      {header}
      <div class="virtual-content" style={{ height: `${slice.contentPx}px` }} role={role === "table" ? "rowgroup" : undefined}>
        <div class="virtual-rows" style={{ transform: `translateY(${slice.offsetPx}px)` }} role="presentation">
          {rows}
        </div>
      </div>
    </div>
  );
}
