import{a as e}from"./feed-C1gw4t7j.js";var t=`state reason message since retryAt`,n=`unchanged created changed pruned failed unhealthy waiting`,r=`kind namespace name file line message`,i=`file line column field message`,a=`group kind namespace name state message since retryAt file line drift written writtenAt owned adopted kept`,o=`query Sources { sources(first: 200) { nodes { id agent name project reference defaultNamespace newestCommit desiredCommit syncedCommit
  syncedAt heldCommit rejectedCommit pinned inventory status { ${t} } sync { id commit startedAt finishedAt outcome counts { ${n} } } } pageInfo { hasNextPage } } }`,s=`query Source($id: ID!) { source(id: $id) { id agent name project reference include exclude defaultNamespace
  newestCommit newestGoodCommit rejectedCommit findings { ${i} } moreFindings warnings { ${i} }
  desiredCommit syncedCommit syncedAt heldCommit heldReason fetchFailure blocked kept suspended pinned inventory
  status { ${t} conditions { ${t} } objects { owned failed drifted degraded progressing suspended } }
  notWell { ${a} }
  sync { id commit startedAt finishedAt outcome waiting retryAt counts { ${n} } failures { ${r} } }
  rights { action allowed reason }
  commits(first: 40) { commit at chain objects rejectedAt findings { ${i} } moreFindings heldAt heldReason confirmedAt confirmedBy
    pinnedAt pinnedBy desiredAt prunes syncs { id startedAt finishedAt outcome run counts { ${n} } failures { ${r} } } } } }`,c=`query SourceObjects($id: ID!, $after: String) { source(id: $id) { objects(first: 500, after: $after) {
  nodes { ${a} } pageInfo { hasNextPage endCursor } } } }`,l=`query SourceDeeds($id: ID!) { source(id: $id) { deeds(first: 50) { at what by detail chain } } }`;async function u(t,n){return(await e(`POST`,`/sources/${encodeURIComponent(t)}/diff`,{},n)).value}export{u as a,o as i,c as n,s as r,l as t};