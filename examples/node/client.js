// Gets a credential, watches it, handles an error by its reason, and reports a rejection. Prints no secret.
//
// Usage: node client.js SOCKET PROVIDER PROTO

const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');

const WATCHED = 3;
const [socket, provider, proto] = process.argv.slice(2);

const { root } = protobuf.parse(`syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; }`);

function say(what, { credential }) {
  console.log(`${what} generation=${credential.generation} token=${credential.token ? 'yes' : 'no'}`);
}

function explain(error) {
  const [details] = error.metadata.get('grpc-status-details-bin');
  const status = root.lookupType('Status').decode(details);
  const info = root.lookupType('ErrorInfo').decode(status.details[0].value);
  if (info.reason !== 'UNKNOWN_PROVIDER') throw error;
  console.log(`error code=${grpc.status[error.code]} reason=${info.reason} domain=${info.domain}`);
  console.log(`message ${error.details}`);
}

async function main() {
  const { CredentialBroker } = grpc.loadPackageDefinition(loader.loadSync(proto, { enums: String })).credbroker.v1;
  // The request has only a name. Before you send a secret, check the owner of the socket.
  const broker = new CredentialBroker(`unix:${socket}`, grpc.credentials.createInsecure());
  const deadline = () => ({ deadline: Date.now() + 60_000 });
  const call = (method, request) => new Promise((resolve, reject) => {
    broker[method](request, deadline(), (error, answer) => (error ? reject(error) : resolve(answer)));
  });
  const ref = { provider: { name: provider } };
  const first = await call('getCredential', { ref });
  say('get', first);

  let seen = 0;
  const watch = broker.watchCredential({ ref }, deadline());
  for await (const answer of watch) {
    say('watch', answer);
    seen += 1;
    if (seen === WATCHED) break;
  }
  watch.cancel();

  await call('getCredential', { ref: { provider: { name: 'not-configured' } } }).catch(explain);
  // As after an answer 401 of an API server.
  const report = await call('reportRejected', { ref, generation: first.credential.generation });
  say('report', report);
  console.log(`outcome=${report.outcome}`);
  broker.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
