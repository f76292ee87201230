// Follows exported events of Kasbah, and goes on where it was after each interruption. Needs only Node.js 24.
//
//   KASBAH_SERVER=https://kasbah.example.com KASBAH_TOKEN=... node follow.ts 'kasbah.sync.*'

type CloudEvent = { id: string; type: string; subject: string; position: string; exportsequence: number; data: unknown };

/** Gives events for ever, each once. Store `position` of an event to go on from there after a restart. */
export async function* follow(server: string, token: string, types = "", position = ""): AsyncGenerator<CloudEvent> {
  const seen: string[] = [];
  for (;;) {
    try {
      const headers: Record<string, string> = { Authorization: `Bearer ${token}`, Accept: "text/event-stream" };
      if (position) headers["Last-Event-ID"] = position;
      const answer = await fetch(`${server}/api/events?${new URLSearchParams(types ? { types } : {})}`, { headers });
      if (answer.status < 500 && !answer.ok) throw new RangeError(`${answer.status}: ${await answer.text()}`);
      let rest = "";
      for await (const piece of answer.body!.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + piece).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          if (line.startsWith("id: ")) position = line.slice(4);
          if (!line.startsWith("data: ")) continue;
          const event: CloudEvent = JSON.parse(line.slice(6));
          if (seen.includes(event.id)) continue;
          seen.push(event.id);
          if (seen.length > 1_000) seen.shift();
          yield event;
        }
      }
    } catch (error) {
      if (error instanceof RangeError) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

if (import.meta.main) {
  const { KASBAH_SERVER = "", KASBAH_TOKEN = "", POSITION = "" } = process.env;
  for await (const event of follow(KASBAH_SERVER, KASBAH_TOKEN, process.argv.slice(2).join(","), POSITION)) {
    console.log(event.exportsequence, event.type, event.subject);
  }
}
