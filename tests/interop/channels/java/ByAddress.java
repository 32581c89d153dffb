import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import java.util.concurrent.TimeUnit;

/** The same client, over a channel to an address instead of a target: it sends another authority. */
public final class ByAddress {
  public static void main(String[] args) throws Exception {
    EpollEventLoopGroup loops = new EpollEventLoopGroup(1);
    try {
      Client.ask(
          NettyChannelBuilder.forAddress(new DomainSocketAddress(args[0]))
              .channelType(EpollDomainSocketChannel.class)
              .eventLoopGroup(loops)
              .usePlaintext()
              .build(),
          args[1]);
    } finally {
      loops.shutdownGracefully(0, 0, TimeUnit.SECONDS);
    }
  }
}
