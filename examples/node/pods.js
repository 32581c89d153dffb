// Lists the pods of a cluster once a second, with the current credential of a ClusterProfile: pods.js NAMESPACE NAME
import { lstatSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { promisify } from 'node:util';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';
import { CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import protobuf from 'protobufjs';

const [namespace, name] = process.argv.slice(2);
const proto = '../../proto/credbroker/v1/credbroker.proto';
const ref = { clusterProfile: { namespace, name } };
const path = (process.env.CREDBROKER_SOCKET || '/run/credbroker/credbroker.sock').replace(/^unix:\/\//, '');
// Bytes become base64, as in a kubeconfig.
const { CredentialBroker } = grpc.loadPackageDefinition(loader.loadSync(proto, { bytes: String })).credbroker.v1;
const broker = new CredentialBroker(`unix:${path}`, grpc.credentials.createInsecure());
const reportRejected = promisify(broker.reportRejected.bind(broker));
// The details of an error, which grpc-js does not decode.
const { Status, RetryInfo } = protobuf.parse(`syntax = "proto3";
  message Status { repeated Any details = 3; } message Any { string type_url = 1; bytes value = 2; }
  message RetryInfo { Delay retry_delay = 1; } message Delay { uint32 seconds = 1; uint32 nanos = 2; }`).root.nested;

// Ends the program unless a trusted user made the socket: another one could send any credential and cluster.
function checkOwner() {
  const [own, named] = [[0, process.geteuid()], process.env.CREDBROKER_BROKER_UID];
  const trusted = named ? [Number(named)] : own;
  const [socket, above] = [lstatSync(path), statSync(dirname(path))];
  const isPrivate = own.concat(trusted).includes(above.uid) && !(above.mode & 0o022);
  if (isPrivate && socket.isSocket() && trusted.includes(socket.uid)) return;
  const owner = `uid ${above.uid} with mode ${(above.mode & 0o7777).toString(8)}`;
  console.error(`${path} is not trusted: uid ${socket.uid} made it, in a directory of ${owner}`);
  process.exit(1);
}

function connect({ cluster, credential }) {
  const { server, tlsServerName, proxyUrl, certificateAuthorityData: caData, insecureSkipTlsVerify } = cluster;
  const { generation, token, clientCertificateData: certData, clientKeyData: keyData } = credential;
  const config = new KubeConfig();
  const reached = { name, server, caData, tlsServerName, proxyUrl, skipTLSVerify: insecureSkipTlsVerify };
  config.loadFromClusterAndUser(reached, { name, token, certData, keyData });
  return { core: config.makeApiClient(CoreV1Api), generation };
}

async function listPods({ core, generation }, mayReport) {
  try {
    console.log(`${(await core.listPodForAllNamespaces()).items.length} pods, generation ${generation}`);
  } catch (error) {
    if (error.code !== 401 || !mayReport) throw error;
    const answer = await reportRejected({ ref, generation }, { deadline: Date.now() + 60_000 });
    await listPods(connect(answer), false);
  }
}

let newest;
async function listForever() {
  for (;; await wait(1000)) if (newest) await listPods(newest, true).catch((error) => console.error(error.message));
}
listForever();
for (let delay = 1000; ; await wait(delay)) {
  try {
    checkOwner();
    for await (const answer of broker.watchCredential({ ref })) newest = connect(answer);
  } catch (error) {
    console.error(error.message);
    const { details } = Status.decode(error.metadata?.get('grpc-status-details-bin')[0] ?? Buffer.alloc(0));
    const retry = details.find(({ typeUrl }) => typeUrl.endsWith('/google.rpc.RetryInfo'));
    const { seconds, nanos } = retry ? RetryInfo.decode(retry.value).retryDelay : { seconds: 1, nanos: 0 };
    delay = seconds * 1000 + nanos / 1e6;
  }
}
