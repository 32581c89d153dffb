package fake

import (
	"io"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/tools/portforward"
)

// The channels of the protocol of exec over WebSocket.
const (
	channelStdin, channelStdout, channelError, channelClose = 0, 1, 3, 255
)

// isUpgrade says whether a path is one of a pod that opens streams.
func isUpgrade(path string) bool {
	return strings.HasSuffix(path, "/exec") || strings.HasSuffix(path, "/attach") || strings.HasSuffix(path, "/portforward")
}

// upgrade serves exec, attach and port-forward of a pod that sends back what it receives, until the client ends its side.
func upgrade(w http.ResponseWriter, r *http.Request) {
	forward := strings.HasSuffix(r.URL.Path, "/portforward")
	switch {
	case websocket.IsWebSocketUpgrade(r) && forward:
		upgradeWebSocket(w, r, "SPDY/3.1+portforward.k8s.io", func(conn *websocket.Conn) {
			streams := make(chan httpstream.Stream, 10)
			tunnel, err := spdy.NewServerConnection(portforward.NewTunnelingConnection("server", conn), collect(streams))
			if err == nil {
				forwardPorts(tunnel, streams)
			}
		})
	case websocket.IsWebSocketUpgrade(r):
		upgradeWebSocket(w, r, "v5.channel.k8s.io", echoMessages)
	default:
		protocol := "v4.channel.k8s.io"
		if forward {
			protocol = "portforward.k8s.io"
		}
		if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
			return
		}
		streams := make(chan httpstream.Stream, 10)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, collect(streams))
		switch {
		case conn == nil:
		case forward:
			forwardPorts(conn, streams)
		default:
			echoStreams(conn, streams)
		}
	}
}

func upgradeWebSocket(w http.ResponseWriter, r *http.Request, protocol string, serve func(*websocket.Conn)) {
	upgrader := websocket.Upgrader{Subprotocols: []string{protocol}}
	if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
		defer conn.Close()
		serve(conn)
	}
}

func collect(streams chan httpstream.Stream) httpstream.NewStreamHandler {
	return func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	}
}

// echoMessages is exec over WebSocket.
func echoMessages(conn *websocket.Conn) {
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if len(message) == 2 && message[0] == channelClose && message[1] == channelStdin {
			_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{channelError}, `{"status":"Success"}`...))
			_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
			return
		}
		if message[0] == channelStdin {
			message[0] = channelStdout
			_ = conn.WriteMessage(websocket.BinaryMessage, message)
		}
	}
}

// echoStreams is exec over SPDY.
func echoStreams(conn httpstream.Connection, streams chan httpstream.Stream) {
	defer conn.Close()
	named := map[string]httpstream.Stream{}
	for len(named) < 3 {
		select {
		case stream := <-streams:
			named[stream.Headers().Get("streamType")] = stream
		case <-conn.CloseChan():
			return
		}
	}
	_, _ = io.Copy(named["stdout"], named["stdin"])
	_, _ = io.WriteString(named["error"], `{"status":"Success"}`)
	for _, stream := range named {
		stream.Close()
	}
	<-conn.CloseChan()
}

// forwardPorts is port-forward, until the client ends it.
func forwardPorts(conn httpstream.Connection, streams chan httpstream.Stream) {
	defer conn.Close()
	for {
		select {
		case stream := <-streams:
			if stream.Headers().Get("streamType") == "data" {
				go func() {
					_, _ = io.Copy(stream, stream)
					stream.Close()
				}()
			} else {
				stream.Close()
			}
		case <-conn.CloseChan():
			return
		}
	}
}
