import { render } from "preact";
import "./style/tokens.css";
import "./style/base.css";
import "./style/frame.css";
import "./style/parts.css";
import "./style/time.css";
import "./style/views.css";
import "./style/lines.css";
import "./style/delivery.css";
import "./style/history.css";
import { App } from "./app.tsx";
import { follow } from "./router.ts";

follow();
const page = document.getElementById("page");
if (page) render(<App />, page);
