// Gets a credential, watches it, handles an error by its reason, and reports a rejection. Prints no secret.
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');

const [socket, provider, proto] = process.argv.slice(2);
// What `grpc-status-details-bin` has; grpc-js does not decode it.
const { Status, ErrorInfo } = protobuf.parse(`syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; }`).root.nested;

function say(what, { credential }) {
  console.log(`${what} generation=${credential.generation} token=${credential.token ? 'yes' : 'no'}`);
}

function handle(error) {
  const status = Status.decode(error.metadata.get('grpc-status-details-bin')[0]);
  const { value } = status.details.find(({ typeUrl }) => typeUrl.endsWith('/google.rpc.ErrorInfo'));
  const { reason } = ErrorInfo.decode(value);
  if (reason !== 'UNKNOWN_PROVIDER') throw error;
  console.log(`error code=${grpc.status[error.code]} reason=${reason}\nmessage ${error.details}`);
}

async function main() {
  const { CredentialBroker } = grpc.loadPackageDefinition(loader.loadSync(proto, { enums: String })).credbroker.v1;
  const broker = new CredentialBroker(`unix:${socket}`, grpc.credentials.createInsecure());
  const soon = { deadline: Date.now() + 60_000 };
  const get = promisify(broker.getCredential.bind(broker));
  const ref = { provider: { name: provider } };
  const first = await get({ ref }, soon);
  say('get', first);
  let left = 3;
  const watch = broker.watchCredential({ ref }, soon);
  for await (const answer of watch) {
    say('watch', answer);
    if (--left === 0) break;
  }
  watch.cancel();
  await get({ ref: { provider: { name: 'not-configured' } } }, soon).catch(handle);
  // As after an answer 401 of an API server.
  const report = promisify(broker.reportRejected.bind(broker));
  const answer = await report({ ref, generation: first.credential.generation }, soon);
  say('report', answer);
  console.log(`outcome=${answer.outcome}`);
  broker.close();
}

main();
