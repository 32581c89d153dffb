// An informer, and one request for each line of standard input.
//
// usage: node client.js KUBECONFIG CONTEXT NAMESPACE
import readline from 'node:readline';
import * as k8s from '@kubernetes/client-node';

const [file, context, namespace] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromFile(file);
config.setCurrentContext(context);
const core = config.makeApiClient(k8s.CoreV1Api);
const print = (line) => console.log(JSON.stringify(line));

const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, () =>
  core.listNamespacedConfigMap({ namespace }),
);
// An informer that fails is started again by the program.
const follow = () => informer.start().catch(again);
const again = (error) => {
  console.error(`informer: ${error}`);
  setTimeout(follow, 1000);
};
informer.on('add', (object) => print({ seen: object.metadata.name }));
informer.on('error', again);
follow();

for await (const _ of readline.createInterface({ input: process.stdin })) {
  try {
    await core.readNamespace({ name: namespace });
    print({ status: 200 });
  } catch (error) {
    print({ status: error.code > 0 ? error.code : 0, error: String(error.message).slice(0, 300) });
  }
}
process.exit();
