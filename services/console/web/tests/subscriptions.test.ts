import assert from "node:assert/strict";
import { test } from "node:test";
import { quoted } from "../src/model/quoted.ts";
import { before, createBody, createCommand, fromOf, inOrder, readerOf, reasonOf, standing, type Subscription, type Wanted } from "../src/model/subscriptions.ts";

function subscription(more: Partial<Subscription>): Subscription {
  const rest = { id: "1", filter: {}, url: "https://example.com", format: "cloud-events", created_at: "2026-01-31T12:00:00Z", reason: "", dead_letters: 0 } as const;
  return { name: "alerts", state: "active", ...rest, ...more };
}

const WANTED: Wanted = { name: "alerts", url: "https://example.com/hook?a=b&c", types: "", about: "", way: "cloud-events", from: { how: "here", text: "" } };
const ENVIRONMENTS = [{ id: "e1", name: "production", projectPath: "shop/deploy" }];

test("the worst subscription stands first, each with its own word", () => {
  const all = [
    subscription({ name: "fine", behind: 3 }),
    subscription({ name: "slow", behind: 4000 }),
    subscription({ name: "later", state: "paused", behind: 4000 }),
    subscription({ name: "over", state: "parked" }),
    subscription({ name: "again", state: "retrying" }),
  ];
  assert.deepEqual(inOrder(all).map((one) => [one.name, standing(one).word]), [
    ["again", "Retrying"],
    ["over", "Parked"],
    ["slow", "Behind"],
    ["later", "Paused"],
    ["fine", "Active"],
  ]);
});

test("who paused a subscription and who reads is said by name, or by id where it has none", () => {
  const id = "01890a5d-ac96-774b-bcce-b302099a8057";
  const names = new Map([[id, "ann"]]);
  const paused = subscription({ state: "paused", reason: `paused by user:${id}` });
  assert.deepEqual([reasonOf(paused, names), reasonOf(paused, new Map())], ["paused by ann", paused.reason]);
  assert.equal(reasonOf(subscription({ reason: "the receiver answered 500" }), names), "the receiver answered 500");
  const reader = { actor: { user: id }, since: "2026-01-31T12:00:00Z", filter: {} };
  assert.deepEqual([readerOf(reader, names), readerOf(reader, new Map())], ["ann", `user:${id}`]);
});

test("a command of a subscription is the one that a shell takes, and means what the request does", () => {
  assert.equal(createCommand(WANTED, []), "kasbah subscription create alerts --webhook 'https://example.com/hook?a=b&c'");
  assert.deepEqual(JSON.parse(JSON.stringify(createBody(WANTED))), { name: "alerts", url: WANTED.url, types: [], format: "cloud-events" });
  const more: Wanted = { ...WANTED, url: "https://example.com/hook", types: "kasbah.sync.*,  kasbah.agent.registered", about: "environment:e1", way: "slack", from: { how: "start", text: "" } };
  assert.equal(
    createCommand(more, ENVIRONMENTS),
    "kasbah subscription create alerts --webhook https://example.com/hook --types 'kasbah.sync.*,kasbah.agent.registered' --project shop/deploy --environment production --format slack --from start",
  );
  const fetched: Wanted = { ...more, way: "nats" };
  assert.equal(createCommand(fetched, []), "kasbah subscription create alerts --nats --types 'kasbah.sync.*,kasbah.agent.registered' --from start");
  assert.deepEqual(createBody(fetched), { name: "alerts", nats: true, types: ["kasbah.sync.*", "kasbah.agent.registered"], from: "start" });
  assert.deepEqual(createBody(more), { name: "alerts", url: "https://example.com/hook", types: ["kasbah.sync.*", "kasbah.agent.registered"], format: "slack", from: "start", environment: "e1" });
  const project = { ...WANTED, about: "project:shop/deploy" };
  assert.match(createCommand(project, ENVIRONMENTS), / --project shop\/deploy$/);
  assert.deepEqual((createBody(project) as { project: string }).project, "shop/deploy");
  assert.equal(quoted("it's"), `'it'\\''s'`);
  assert.deepEqual([fromOf({ how: "here", text: "x" }), fromOf({ how: "time", text: "" }), fromOf({ how: "position", text: " a.1.2 " })], [undefined, undefined, "a.1.2"]);
});

test("an event is read from the position before it", () => {
  assert.equal(before("0198c2.42.1764338400000"), "0198c2.41.1764338400000");
  assert.deepEqual([before("0198c2.0.1"), before("0198c2"), before("a.b.c")], [null, null, null]);
});
