// What stands in a view's place when it cannot be drawn: an answer of another
// version of the server, or a fault of the page. The frame around it goes on.
import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { Banner, PageHead } from "./basics";

interface Props {
  /** Where the reader is: another place is drawn anew. */
  readonly at: string;
  readonly children: ComponentChildren;
}

export function Guard({ at, children }: Props) {
  const [failure, reset] = useErrorBoundary() as [unknown, () => void];
  useEffect(() => {
    if (failure !== undefined) reset();
  }, [at]);
  if (failure === undefined) return <>{children}</>;
  const error = failure instanceof Error ? failure : new Error(String(failure));
  return (
    <>
      <PageHead title="This page can't be drawn" />
      <Banner tone="error" title={error.message || error.name} testid="broken">
        <p>Nothing on the server changed. Load the page again; if it stays, report it with the details below and what the address bar says.</p>
        <div>
          <button type="button" class="tiny" onClick={() => location.reload()}>
            Reload
          </button>
        </div>
      </Banner>
      <details>
        <summary>Details</summary>
        <pre class="preview" tabIndex={0} role="group" aria-label="Details of the fault">
          {error.stack ?? String(error)}
        </pre>
      </details>
    </>
  );
}
