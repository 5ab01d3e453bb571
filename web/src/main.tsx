// The entry: colours first, then the router, then who is there, then the page.
import { render } from "preact";
import { App } from "./app";
import { startRouter } from "./router";
import { startSession } from "./state/session";
import { startTheme } from "./state/theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/views.css";

startTheme();
startRouter();
void startSession();
const root = document.getElementById("app");
if (root === null) throw new Error("index.html has no #app element");
render(<App />, root);
