import com.google.rpc.RetryInfo;
import io.credbroker.v1.*;
import io.grpc.*;
import io.grpc.protobuf.StatusProto;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.util.ClientBuilder;
import io.kubernetes.client.util.credentials.*;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import jdk.net.ExtendedSocketOptions;

/** Lists the pods of a cluster once a second, with the current credential of a ClusterProfile: Pods NAMESPACE NAME */
public final class Pods {
  private static final CredentialRef.Builder ref = CredentialRef.newBuilder();
  private static CredentialBrokerGrpc.CredentialBrokerBlockingStub broker;
  private static volatile Client newest;

  private record Client(CoreV1Api core, String generation) {}

  public static void main(String[] args) throws Exception {
    ref.getClusterProfileBuilder().setNamespace(args[0]).setName(args[1]);
    var path = System.getenv().getOrDefault("CREDBROKER_SOCKET", "/run/credbroker/credbroker.sock");
    var channel = Grpc.newChannelBuilder("unix:" + path, InsecureChannelCredentials.create()).build();
    broker = CredentialBrokerGrpc.newBlockingStub(channel);
    Executors.newSingleThreadScheduledExecutor().scheduleWithFixedDelay(Pods::list, 1, 1, TimeUnit.SECONDS);
    for (long delay = 1; ; TimeUnit.SECONDS.sleep(delay), delay = 1) {
      try {
        checkServer(Path.of(path));
        var answers = broker.watchCredential(WatchCredentialRequest.newBuilder().setRef(ref).build());
        answers.forEachRemaining(answer -> newest = connect(answer.getCluster(), answer.getCredential()));
      } catch (IOException | StatusRuntimeException error) { // The broker is away, or has no credential.
        System.err.println(error);
        var status = Optional.ofNullable(StatusProto.fromThrowable(error));
        for (var detail : status.map(found -> found.getDetailsList()).orElse(List.of())) {
          if (detail.is(RetryInfo.class)) delay = 1 + detail.unpack(RetryInfo.class).getRetryDelay().getSeconds();
        }
      }
    }
  }

  /** Ends the program unless a trusted user serves the socket: another one could send any credential and cluster. */
  private static void checkServer(Path path) throws IOException {
    var users = path.getFileSystem().getUserPrincipalLookupService();
    var own = List.of(users.lookupPrincipalByName("0"), Files.getOwner(Path.of("/proc/self")));
    var named = System.getenv("CREDBROKER_BROKER_UID");
    var trusted = named == null ? own : List.of(users.lookupPrincipalByName(named));
    var owner = Files.getOwner(path.getParent());
    var mode = (int) Files.getAttribute(path.getParent(), "unix:mode");
    var isPrivate = (own.contains(owner) || trusted.contains(owner)) && (mode & 022) == 0;
    try (var probe = SocketChannel.open(UnixDomainSocketAddress.of(path))) {
      var user = probe.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
      if (isPrivate && trusted.contains(user) && !Files.isSymbolicLink(path)) return;
      System.err.printf("%s is not trusted: %s listens, in a directory of %s, mode %o%n", path, user, owner, mode);
      System.exit(1);
    }
  }

  private static Client connect(Cluster cluster, Credential credential) {
    var api = new ClientBuilder().setBasePath(cluster.getServer()).setVerifyingSsl(!cluster.getInsecureSkipTlsVerify());
    var ca = cluster.getCertificateAuthorityData().toByteArray();
    if (ca.length > 0) api.setCertificateAuthority(ca);
    if (cluster.hasTlsServerName()) api.setTlsServerName(cluster.getTlsServerName());
    var certificate = credential.getClientCertificateData().toByteArray();
    var key = credential.getClientKeyData().toByteArray();
    api.setAuthentication(client -> {
      if (key.length > 0) new ClientCertificateAuthentication(certificate, key).provide(client);
      if (credential.hasToken()) new AccessTokenAuthentication(credential.getToken()).provide(client);
    });
    return new Client(new CoreV1Api(api.build()), credential.getGeneration());
  }

  private static void listPods(Client client) throws ApiException {
    var pods = client.core.listPodForAllNamespaces().execute().getItems();
    System.out.printf("%d pods, generation %s%n", pods.size(), client.generation);
  }

  private static void list() {
    var current = newest;
    try {
      try {
        if (current != null) listPods(current);
      } catch (ApiException error) {
        if (error.getCode() != 401) throw error;
        var report = ReportRejectedRequest.newBuilder().setRef(ref).setGeneration(current.generation).build();
        var answer = broker.withDeadlineAfter(60, TimeUnit.SECONDS).reportRejected(report);
        listPods(connect(answer.getCluster(), answer.getCredential()));
      }
    } catch (Exception error) { // The next list may succeed.
      System.err.println(error);
    }
  }
}
