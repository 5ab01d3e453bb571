// Asks the endpoint beside this page and shows each line of its answer as it comes. The key stays in its field: it is in
// no storage, no address and no log.

const element = (id) => document.getElementById(id);

/** Sends one request; calls `heard` for each line of the answer. Throws an Error with a sentence for the user. */
async function ask(body, heard) {
  let reply;
  try {
    reply = await fetch("/api/workspaces", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
    });
  } catch {
    throw new Error("This page's server cannot be reached. Check the connection and try again.");
  }
  if (!reply.ok) {
    const said = await reply.json().catch(() => ({}));
    throw new Error(said.error ?? `The server answered ${reply.status}. Try again.`);
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let ended = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const text of lines) {
      const line = JSON.parse(text);
      if (line.error !== undefined) throw new Error(line.error);
      ended ||= line.result !== undefined;
      heard(line);
    }
  }
  if (!ended) throw new Error("The connection broke off. Try again: it goes on from where it was.");
}

function request(action) {
  const image = element("image").value.trim();
  return {
    action,
    workspace: element("workspace").value.trim(),
    api_key: element("key").value.trim(),
    ...(action === "deploy" && image !== "" ? { image } : {}),
  };
}

function busy(on) {
  for (const button of document.querySelectorAll("button")) button.disabled = on;
}

function showReady(result) {
  element("open").href = result.open;
  element("app").textContent = result.app;
  element("token").textContent = result.token;
  element("s3").textContent = result.s3_endpoint;
  element("upload").replaceChildren(
    ...result.upload.map((command) => {
      const block = document.createElement("pre");
      block.textContent = command;
      block.tabIndex = 0;
      return block;
    }),
  );
  element("ready").hidden = false;
  element("ready-title").focus();
}

async function create(event) {
  event.preventDefault();
  busy(true);
  element("steps").replaceChildren();
  element("error").hidden = true;
  element("ready").hidden = true;
  element("progress").hidden = false;
  try {
    await ask(request("deploy"), (line) => {
      if (line.step !== undefined) {
        const item = document.createElement("li");
        item.textContent = line.step;
        element("steps").append(item);
      }
      if (line.result !== undefined) showReady(line.result);
    });
  } catch (error) {
    element("error").textContent = error.message;
    element("error").hidden = false;
  } finally {
    busy(false);
  }
}

async function manage(event) {
  const action = event.currentTarget.dataset.action;
  if (!element("start").reportValidity()) return;
  const asked = request(action);
  if (action === "delete") {
    const sure = window.confirm(`Delete the workspace ${asked.workspace} with all its traces and runs?`);
    if (!sure) return;
  }
  busy(true);
  element("managed").textContent = `${action} …`;
  try {
    await ask(asked, (line) => {
      const status = line.result?.status;
      if (status !== undefined) {
        element("managed").textContent =
          status === "none" ? `There is no workspace ${asked.workspace}.` : `${asked.workspace} is ${status}.`;
      }
    });
  } catch (error) {
    element("managed").textContent = error.message;
  } finally {
    busy(false);
  }
}

element("start").addEventListener("submit", create);
for (const button of document.querySelectorAll("[data-action]")) button.addEventListener("click", manage);
