"use strict";
// The token stays in this page: it is neither stored nor put into the address.
const element = (id) => document.getElementById(id);
const INTROSPECTION = `{ __schema { types { name kind description
  fields { name description args { name type { ...Of } } type { ...Of } }
  inputFields { name description type { ...Of } } enumValues { name description } } } }
fragment Of on __Type { kind name ofType { kind name ofType { kind name ofType { kind name } } } }`;
let running = null;
let types = [];

const headers = (accept) => ({
  accept,
  "content-type": "application/json",
  authorization: `Bearer ${element("token").value.trim()}`,
});

async function ask(query, variables, accept, signal) {
  const body = JSON.stringify({ query, variables });
  return fetch("/api/graphql", { method: "POST", headers: headers(accept), body, signal });
}

function say(text) {
  element("status").textContent = text;
}

async function run() {
  stop();
  const running_now = new AbortController();
  running = running_now;
  element("stop").disabled = false;
  element("result").textContent = "";
  const began = performance.now();
  try {
    const text = element("variables").value.trim();
    const variables = text ? JSON.parse(text) : undefined;
    const query = element("query").value;
    const is_subscription = /^\s*subscription\b/m.test(query);
    const accept = is_subscription ? "text/event-stream" : "application/graphql-response+json, application/json";
    const response = await ask(query, variables, accept, running_now.signal);
    if (is_subscription && response.ok) {
      say("following");
      await follow(response);
      say("ended");
    } else {
      element("result").textContent = JSON.stringify(await response.json(), null, 2);
      say(`${response.status} in ${Math.round(performance.now() - began)} ms`);
    }
  } catch (error) {
    say(error.name === "AbortError" ? "stopped" : String(error));
  } finally {
    if (running === running_now) {
      running = null;
      element("stop").disabled = true;
    }
  }
}

// Server-sent events are read by hand, since EventSource sends no token.
async function follow(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data) show(JSON.stringify(JSON.parse(data.slice(6)), null, 2));
    }
  }
}

function show(text) {
  const result = element("result");
  result.prepend(`${text}\n`);
  while (result.childNodes.length > 200) result.lastChild.remove();
}

function stop() {
  running?.abort();
}

const type_of = (type) => {
  if (type.kind === "NON_NULL") return `${type_of(type.ofType)}!`;
  return type.kind === "LIST" ? `[${type_of(type.ofType)}]` : type.name;
};

async function read_schema() {
  if (!element("token").value.trim()) return;
  const response = await ask(INTROSPECTION, undefined, "application/json");
  const answer = await response.json();
  if (answer.data) {
    types = answer.data.__schema.types.filter((type) => !type.name.startsWith("__"));
    const roots = ["Query", "Subscription"];
    types.sort((one, other) => roots.includes(other.name) - roots.includes(one.name) || one.name.localeCompare(other.name));
    list();
  } else {
    element("schema").textContent = answer.message ?? answer.errors?.[0]?.message ?? "no schema";
  }
}

function list() {
  const wanted = element("search").value.trim().toLowerCase();
  const has = (text) => text?.toLowerCase().includes(wanted);
  const nodes = [];
  for (const type of types) {
    const fields = (type.fields ?? type.inputFields ?? type.enumValues ?? []);
    const found = has(type.name) ? fields : fields.filter((field) => has(field.name));
    if (wanted && !has(type.name) && !found.length) continue;
    const title = document.createElement("h2");
    title.textContent = type.name;
    title.title = type.description ?? "";
    const terms = document.createElement("dl");
    for (const field of found) {
      const name = document.createElement("dt");
      const args = (field.args ?? []).map((arg) => `${arg.name}: ${type_of(arg.type)}`).join(", ");
      name.textContent = field.name + (args ? `(${args})` : "") + (field.type ? `: ${type_of(field.type)}` : "");
      const words = document.createElement("dd");
      words.textContent = field.description ?? "";
      terms.append(name, words);
    }
    nodes.push(title, terms);
  }
  element("schema").replaceChildren(...nodes);
}

element("run").addEventListener("click", run);
element("stop").addEventListener("click", stop);
element("token").addEventListener("change", () => read_schema().catch((error) => say(String(error))));
element("search").addEventListener("input", list);
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
});
