import { Differences } from "../object/differences.tsx";
import { Shape } from "../../parts/status.tsx";
import "../../style/network.css";
import "../../style/object.css";
import "../../style/place.css";

/** Parts of an environment's page, for the view of all parts. */
export function PlaceSamples() {
  return (
    <>
      <h2>Objects of a tree</h2>
      <div class="samples node-samples">
        {(["healthy", "degraded", "progressing"] as const).map((status) => (
          <span class={`node${status === "degraded" ? " is-guilty" : ""}`} key={status}>
            <Shape status={status} />
            <span class="node-name">web-66bc879f95</span>
            <span class="node-kind">ReplicaSet</span>
          </span>
        ))}
        <span class="node is-selected">
          <Shape status="healthy" stale />
          <span class="node-name">chosen and stale</span>
          <span class="node-kind">Deployment</span>
        </span>
        <span class="node is-fold">
          <Shape status="healthy" />
          <span class="node-name">12 × Pod</span>
          <span class="node-kind">healthy, open</span>
        </span>
      </div>
      <h2>Parts of a network</h2>
      <div class="samples node-samples">
        {([["healthy", "strict", ""], ["degraded", "permissive", ""], ["healthy", "off", " is-beside"], ["none", "unknown", " is-dim"]] as const).map(([status, mtls, state]) => (
          <span class={`node network-node${state}`} key={mtls}>
            <Shape status={status} />
            <span class="node-name">web</span>
            <span class="node-kind">
              Pod, <span class={`mtls is-${mtls}`}>mTLS {mtls}</span>
            </span>
          </span>
        ))}
        <span class="node network-node is-beside">
          <Shape status="missing" />
          <span class="node-name">gone</span>
          <span class="node-kind">Service, is not there</span>
        </span>
      </div>
      <h2>Pods of a board</h2>
      <div class="squares">
        {(["healthy", "healthy", "progressing", "degraded", "missing", "unknown"] as const).map((status, number) => (
          <span class="square" key={number}>
            <Shape status={status} stale={number === 1} />
          </span>
        ))}
      </div>
      <h2>Differences</h2>
      <Differences
        fields={[
          { path: "spec.replicas", before: 3, after: 5 },
          { path: "metadata.labels.track", before: null, after: "canary" },
        ]}
      />
      <h2>A past moment</h2>
      <span class="past-word">as of 14:02:11</span>
    </>
  );
}
