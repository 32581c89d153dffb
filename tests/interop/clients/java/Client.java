import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.ClientBuilder;
import io.kubernetes.client.util.KubeConfig;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.time.Duration;

/**
 * An informer, and one request for each line of standard input.
 *
 * <p>usage: Client KUBECONFIG CONTEXT NAMESPACE [SECONDS], where SECONDS is the interval in which the token is renewed.
 */
class Client {
  public static void main(String[] arguments) throws Exception {
    var config = KubeConfig.loadKubeConfig(new FileReader(arguments[0]));
    config.setFile(new File(arguments[0]));
    config.setContext(arguments[1]);
    var namespace = arguments[2];
    var builder =
        arguments.length > 3
            ? ClientBuilder.kubeconfig(config, Duration.ofSeconds(Long.parseLong(arguments[3])))
            : ClientBuilder.kubeconfig(config);
    var client = builder.build();
    var core = new CoreV1Api(client);

    // The client of an informer must not end a watch, so it is another one without a timeout for reading.
    var watching = builder.setReadTimeout(Duration.ZERO).build();
    var factory = new SharedInformerFactory(watching);
    var informer =
        factory.sharedIndexInformerFor(
            (CallGeneratorParams params) ->
                new CoreV1Api(watching)
                    .listNamespacedConfigMap(namespace)
                    .resourceVersion(params.resourceVersion)
                    .timeoutSeconds(params.timeoutSeconds)
                    .watch(params.watch)
                    .buildCall(null),
            V1ConfigMap.class,
            V1ConfigMapList.class);
    informer.addEventHandler(
        new ResourceEventHandler<>() {
          public void onAdd(V1ConfigMap object) {
            print("{\"seen\": \"" + object.getMetadata().getName() + "\"}");
          }

          public void onUpdate(V1ConfigMap before, V1ConfigMap after) {}

          public void onDelete(V1ConfigMap object, boolean unknown) {}
        });
    factory.startAllRegisteredInformers();

    var commands = new BufferedReader(new InputStreamReader(System.in));
    while (commands.readLine() != null) {
      try {
        core.readNamespace(namespace).execute();
        print("{\"status\": 200}");
      } catch (ApiException error) {
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
