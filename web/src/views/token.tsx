// The token screen: shown when the server wants a token and the browser has none
// that it takes. The address stays as it was, so that the wanted view follows.
import { useEffect, useRef, useState } from "preact/hooks";
import { Brand } from "../components/frame";
import { logIn, tokenProblem } from "../state/session";

export function TokenView() {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    document.title = "Log in · Cascade";
    input.current?.focus();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (text.trim() === "") return;
    setBusy(true);
    await logIn(text);
    setBusy(false);
  };
  return (
    <main class="gate">
      <Brand />
      <form class="card" onSubmit={(event) => void submit(event)} data-testid="token-form">
        <div class="body">
          <h1>Log in</h1>
          <p class="muted">
            Paste the token that the server was started with (<code>CASCADE_TOKEN</code>).
          </p>
          <div class="field">
            <label for="token">Token</label>
            <input
              id="token"
              ref={input}
              type="password"
              autocomplete="current-password"
              value={text}
              aria-invalid={tokenProblem.value !== null}
              aria-describedby="token-problem"
              onInput={(event) => setText(event.currentTarget.value)}
              data-testid="token-input"
            />
          </div>
          <p id="token-problem" class="problem" role="alert">
            {tokenProblem.value}
          </p>
          <button class="primary" disabled={busy || text.trim() === ""} data-testid="token-submit">
            {busy ? "Checking…" : "Log in"}
          </button>
          <p class="small muted">It stays in this browser. A link that ends in #token=… logs in as well.</p>
        </div>
      </form>
    </main>
  );
}
