import com.google.rpc.RetryInfo;
import io.credbroker.v1.*;
import io.grpc.*;
import io.grpc.protobuf.StatusProto;
import io.kubernetes.client.openapi.*;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.util.ClientBuilder;
import io.kubernetes.client.util.credentials.*;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.*;
import java.util.*;
import jdk.net.ExtendedSocketOptions;

/** Lists the pods of a cluster once a second, with the current credential of a ClusterProfile: Pods NAMESPACE NAME */
public final class Pods {
  static CredentialRef ref;
  static CredentialBrokerGrpc.CredentialBrokerBlockingStub broker;
  static volatile Current newest;

  record Current(CoreV1Api core, String generation) {}

  public static void main(String[] args) throws Exception {
    var profile = ClusterProfileRef.newBuilder().setNamespace(args[0]).setName(args[1]);
    ref = CredentialRef.newBuilder().setClusterProfile(profile).build();
    var socket = System.getenv().getOrDefault("CREDBROKER_SOCKET", "/run/credbroker/credbroker.sock");
    var channel = Grpc.newChannelBuilder("unix://" + socket, InsecureChannelCredentials.create()).build();
    broker = CredentialBrokerGrpc.newBlockingStub(channel);
    new Timer(true).schedule(...)
    while (true) {
      var delay = 1000L;
      try {
        checkServer(Path.of(socket));
        broker.watchCredential(WatchCredentialRequest.newBuilder().setRef(ref).build()).forEachRemaining(answer -> newest = connect(answer.getCluster(), answer.getCredential()));
      } catch (IOException | StatusRuntimeException error) {
      }
      Thread.sleep(delay);
    }
  }
}
