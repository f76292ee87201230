// An identity provider on loopback, as people's companies have one: `node provider.mjs <port> <client id>`.
import { Provider } from 'oidc-provider';

const [port, client] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: client,
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'urn:ietf:params:oauth:grant-type:device_code'],
      response_types: ['code'],
      // Any port of loopback goes with it (RFC 8252, section 7.3).
      redirect_uris: ['http://127.0.0.1/callback', 'http://127.0.0.1/api/session/callback'],
    },
  ],
  features: { devInteractions: { enabled: true }, deviceFlow: { enabled: true } },
  pkce: { required: () => true },
  // What is asked for by scope stands in the ID token, as with most providers.
  conformIdTokenClaims: false,
  claims: { email: ['email', 'email_verified'], profile: ['preferred_username'] },
  // Whoever signs in is who they say: an address, whose first part is their name.
  findAccount: (_, login) => ({
    accountId: login,
    claims: () => ({
      sub: `sub-${login}`,
      email: login,
      email_verified: true,
      preferred_username: login.split('@')[0],
    }),
  }),
});

// The server drops what it does not know how to answer; a test that fails shows why.
provider.on('server_error', (_, error) => console.error(error));
provider.listen(Number(port), '127.0.0.1');
