package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

const (
	text = "hello"
	pod  = "/api/v1/namespaces/streams/pods/echo/"
)

// open opens one stream, and fails unless it sends back a text.
func open(ctx context.Context, config *rest.Config, action string, overWebSocket bool) error {
	query := "?container=echo&stdin=true&stdout=true"
	switch action {
	case "portforward":
		return forward(ctx, config, overWebSocket)
	case "exec":
		query += "&command=/streams&command=echo"
	}
	at, err := url.Parse(config.Host + pod + action + query)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, at)
	if overWebSocket {
		executor, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, at.String())
	}
	if err != nil {
		return err
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	// The process that is attached to does not end with its input.
	input, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = io.WriteString(writer, text) }()
	output := &expected{enough: enough}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: input, Stdout: output})
	if output.isComplete() {
		return nil
	}
	return fmt.Errorf("%q came back: %w", output.got.String(), err)
}

// An expected ends the stream when it has the text.
type expected struct {
	mutex  sync.Mutex
	got    bytes.Buffer
	enough func()
}

func (e *expected) Write(part []byte) (int, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.got.Write(part)
	if e.got.String() == text {
		e.enough()
	}
	return len(part), nil
}

func (e *expected) isComplete() bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.got.String() == text
}

func forward(ctx context.Context, config *rest.Config, overWebSocket bool) error {
	dialer, err := dialerOf(config, overWebSocket)
	if err != nil {
		return err
	}
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return err
	case <-ready:
	}
	defer close(stop)
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	answer := make([]byte, len(text))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != text {
		return fmt.Errorf("%q came back: %w", answer, err)
	}
	return nil
}

func dialerOf(config *rest.Config, overWebSocket bool) (httpstream.Dialer, error) {
	at, err := url.Parse(config.Host + pod + "portforward")
	if err != nil {
		return nil, err
	}
	if overWebSocket {
		return portforward.NewSPDYOverWebsocketDialer(at, config)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at), nil
}
