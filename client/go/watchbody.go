package credbroker

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// A watchBody is the answer to a watch. When its lane ends, the watch ends as if the server had ended it, which is not an
// error: informers watch again from where they are, without a list.
type watchBody struct {
	io.ReadCloser
	lane   *lane
	cancel context.CancelFunc
	// Keeps the connections from being dropped while the watch is open.
	lanes *lanes
}

func (b *watchBody) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	if err != nil && b.lane.ended.Load() {
		err = io.EOF
	}
	return n, err
}

func (b *watchBody) Close() error {
	b.lane.mu.Lock()
	delete(b.lane.watches, b)
	b.lane.mu.Unlock()
	b.cancel()
	return b.ReadCloser.Close()
}

// The paths of watches without a parameter, which the API deprecates and client-go does not use. A pod or a namespace can
// have the name watch too.
var watchPath = regexp.MustCompile(`^/(api/[^/]+|apis/[^/]+/[^/]+)/watch/.`)

// isWatch says whether the request is a watch of the Kubernetes API. The end of any other answer could be taken for its
// whole.
func isWatch(request *http.Request) bool {
	if request.Method != http.MethodGet {
		return false
	}
	// Most requests have no such parameter, and their query needs no parser.
	if strings.Contains(request.URL.RawQuery, "watch=") {
		watch := request.URL.Query().Get("watch")
		return watch == "true" || watch == "1"
	}
	return strings.Contains(request.URL.Path, "/watch/") && watchPath.MatchString(request.URL.Path)
}

// send sends a request over the lane.
func (l *lane) send(request *http.Request, of *lanes) (*http.Response, error) {
	if !isWatch(request) {
		return l.transport.RoundTrip(request)
	}
	ctx, cancel := context.WithCancel(request.Context())
	response, err := l.transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	body := &watchBody{ReadCloser: response.Body, lane: l, cancel: cancel, lanes: of}
	response.Body = body
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.Load() {
		cancel()
	} else {
		l.watches[body] = struct{}{}
	}
	return response, nil
}
