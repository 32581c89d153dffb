import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.io.BufferedReader;
import java.io.InputStreamReader;

/**
 * An informer, and one request for each line of standard input.
 *
 * <p>usage: Client CONTEXT NAMESPACE, with the kubeconfig in the variable KUBECONFIG
 */
class Client {
  public static void main(String[] arguments) throws Exception {
    var namespace = arguments[1];
    var client = new KubernetesClientBuilder().withConfig(Config.autoConfigure(arguments[0])).build();
    var informer = client.configMaps().inNamespace(namespace).runnableInformer(0);
    informer.exceptionHandler((started, error) -> true);
    informer.addEventHandler(
        new ResourceEventHandler<>() {
          public void onAdd(ConfigMap object) {
            print("{\"seen\": \"" + object.getMetadata().getName() + "\"}");
          }

          public void onUpdate(ConfigMap before, ConfigMap after) {}

          public void onDelete(ConfigMap object, boolean unknown) {}
        });
    informer.start();

    var commands = new BufferedReader(new InputStreamReader(System.in));
    while (commands.readLine() != null) {
      try {
        client.namespaces().withName(namespace).get();
        print("{\"status\": 200}");
      } catch (KubernetesClientException error) {
        System.err.println(error);
        print("{\"status\": " + error.getCode() + "}");
      }
    }
    System.exit(0);
  }

  private static synchronized void print(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
