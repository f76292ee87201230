import type { Subscription } from "../../model/subscriptions.ts";
import { Command } from "../../parts/states.tsx";

/** What the server answers once, where it makes a secret. */
export interface WithSecret {
  subscription: Subscription;
  secret: string;
}

/** The secret that signs what is sent. It is not kept by the page. */
export function Secret({ of }: { of: WithSecret }) {
  return (
    <div class="secret">
      <p>This is the secret that receivers verify with. It is shown only now:</p>
      <Command text={of.secret} />
    </div>
  );
}
