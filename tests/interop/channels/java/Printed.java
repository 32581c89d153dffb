import com.google.protobuf.ByteString;
import com.google.protobuf.TextFormat;
import io.credbroker.v1.Credential;

/** Prints a credential message that comes from no broker: what a log would show of its secret fields. */
public final class Printed {
  public static void main(String[] args) {
    Credential credential =
        Credential.newBuilder()
            .setGeneration("g-1")
            .setToken("c4n4ry")
            .setClientKeyData(ByteString.copyFromUtf8("c4n4ry"))
            .build();
    System.out.println(credential.toString().replace("\n", " "));
    System.out.println(TextFormat.printer().printToString(credential).replace("\n", " "));
  }
}
