// Which view the address names. Views beyond the lists load when they are first
// opened, so that the first load stays small.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Brand, Frame } from "./components/frame";
import { Guard } from "./components/guard";
import { ErrorNote, Loading, PageHead } from "./components/basics";
import type { Route } from "./router";
import { navigate, pathOf, route } from "./router";
import { access, unreachableSince } from "./state/session";
import { RunsView } from "./views/runs";
import { TokenView } from "./views/token";
import { TraceView } from "./views/trace";
import { TracesView } from "./views/traces";
import { NewRunView } from "./views/new-run";

const RunView = later(() => import("./views/run/run").then((m) => m.RunView));
const LogView = later(() => import("./views/run/log").then((m) => m.LogView));
const KernelsView = later(() => import("./views/run/kernels").then((m) => m.KernelsView));
const CompareView = later(() => import("./views/compare").then((m) => m.CompareView));
const SimulatorView = later(() => import("./views/simulator").then((m) => m.SimulatorView));

export function App() {
  if (access.value === "checking") return <Starting />;
  if (access.value === "token-needed") return <TokenView />;
  return (
    <Frame>
      <Guard at={pathOf(route.value)}>
        <View route={route.value} />
      </Guard>
    </Frame>
  );
}

function View({ route }: { route: Route }) {
  useEffect(() => {
    if (route.view === "home") navigate("/traces", { replace: true });
  }, [route.view]);
  switch (route.view) {
    case "home":
      return null;
    case "traces":
      return <TracesView />;
    case "trace":
      return <TraceView key={route.traceId} traceId={route.traceId} />;
    case "new-run":
      return <NewRunView key={route.traceId} traceId={route.traceId} />;
    case "runs":
      return <RunsView />;
    case "run":
      return <RunView key={route.runId} runId={route.runId} simId={null} />;
    case "sim":
      return <RunView key={route.runId} runId={route.runId} simId={route.simId} />;
    case "log":
      return <LogView key={route.simId} runId={route.runId} simId={route.simId} />;
    case "kernels":
      return <KernelsView key={route.simId} runId={route.runId} simId={route.simId} />;
    case "compare":
      return <CompareView />;
    case "simulator":
      return <SimulatorView />;
    case "not-found":
      return (
        <>
          <PageHead title="Nothing here" />
          <p>
            No page has the address <code>{route.path}</code>. Try <a href="/traces">Traces</a> or <a href="/runs">Runs</a>.
          </p>
        </>
      );
  }
}

function Starting() {
  return (
    <div class="gate">
      <Brand />
      {unreachableSince.value === null ? <Loading what="Cascade" /> : <p role="status">The server doesn't answer yet. Trying again…</p>}
    </div>
  );
}

/** A view whose code arrives when it is first shown. */
function later<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Later(props: P) {
    const [, redraw] = useState(0);
    const [error, setError] = useState<Error | null>(null);
    useEffect(() => {
      if (loaded !== null) return;
      load().then(
        (component) => {
          loaded = component;
          redraw(1);
        },
        (failure: unknown) => setError(failure instanceof Error ? failure : new Error(String(failure))),
      );
    }, []);
    if (error !== null) return <ErrorNote error={error} retry={() => location.reload()} />;
    if (loaded === null) return <Loading what="the page" />;
    const Component = loaded;
    return <Component {...props} />;
  };
}
