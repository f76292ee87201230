import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "../../api/graphql.ts";
import { placeOf, wordOf } from "../../model/delivery.ts";
import { loader } from "../../model/loaded.ts";
import { lately } from "../../model/now.ts";
import { compare, ofState } from "../../model/status.ts";
import { readable } from "../../model/time.ts";
import { Empty, Notice, Skeleton, Trouble } from "../../parts/states.tsx";
import { Status } from "../../parts/status.tsx";
import { PlainTable } from "../../parts/table.tsx";
import { Ago } from "../../parts/time.tsx";
import { OBJECTS, type ObjectsAnswer, type SourceObject } from "../../api/delivery.ts";

const PAGES = 4;
const ROWS = 500;

/** The outcome of each object of a source. `stamp` changes when it may be another. */
export function Objects({ id, stamp }: { id: string; stamp: string }) {
  const objects = useMemo(() => loader((stop) => all(id, stop)), [id]);
  useEffect(() => void objects.run(), [objects, stamp]);
  useEffect(() => objects.stop, [objects]);
  const { value, error, retryAt } = objects.state.value;
  return (
    <>
      {error && <Trouble error={error} retryAt={retryAt} retry={() => void objects.run()} />}
      {!value && !error && <Skeleton rows={8} label="Loading objects" />}
      {value?.isCut && <Notice>There are more objects than are shown here: kasbah source objects.</Notice>}
      {value && <Table objects={value.objects} />}
    </>
  );
}

async function all(id: string, stop: AbortSignal): Promise<{ objects: SourceObject[]; isCut: boolean }> {
  const objects: SourceObject[] = [];
  let after: string | null = null;
  for (let page = 0; page < PAGES; page++) {
    const answer: ObjectsAnswer = await ask(OBJECTS, { id, after }, stop);
    objects.push(...answer.source.objects.nodes);
    after = answer.source.objects.pageInfo.endCursor;
    if (!answer.source.objects.pageInfo.hasNextPage) return { objects, isCut: false };
  }
  return { objects, isCut: true };
}

function Table({ objects }: { objects: SourceObject[] }) {
  const [text, setText] = useState("");
  if (objects.length === 0) return <Empty title="It owns no object in the cluster yet." />;
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const words = (one: SourceObject) => `${one.kind} ${one.namespace} ${one.name} ${wordOf(one.state)} ${one.message ?? ""}`.toLowerCase();
  const shown = objects
    .filter((one) => wanted.every((word) => words(one).includes(word)))
    .sort((one, other) => compare(ofState(one.state), ofState(other.state)) || one.kind.localeCompare(other.kind) || one.name.localeCompare(other.name));
  return (
    <>
      <div class="filters">
        <input type="search" aria-label="Filter objects" placeholder="Filter" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <span class="muted">
          {shown.length} of {objects.length}
        </span>
      </div>
      <PlainTable label="Objects" columns={["Status", "Kind", "Name", "Last write"]} wide="Why">
        {shown.slice(0, ROWS).map((one) => (
          <Row of={one} key={`${one.group} ${one.kind} ${one.namespace}/${one.name}`} />
        ))}
      </PlainTable>
    </>
  );
}

function Row({ of }: { of: SourceObject }) {
  const why = [
    of.message && readable(of.message, lately.value),
    of.file && placeOf({ file: of.file, line: of.line ?? 0, column: 0 }),
    of.drift.length > 0 && `changed by somebody else: ${of.drift.join(", ")}`,
    of.kept && `kept: ${of.kept}`,
    of.adopted && "it was there before",
  ].filter(Boolean);
  return (
    <tr>
      <td>
        <Status status={ofState(of.state)} word={wordOf(of.state)} />
      </td>
      <td>{of.kind}</td>
      <td class="name" title={of.name}>
        {of.namespace && <span class="muted">{of.namespace}/</span>}
        {of.name}
      </td>
      <td>
        {of.written}{" "}
        {of.writtenAt && (
          <span class="muted">
            <Ago at={Date.parse(of.writtenAt)} />
          </span>
        )}
      </td>
      <td class="wide" title={why.join("\n")}>
        {why.join("; ")}
      </td>
    </tr>
  );
}
