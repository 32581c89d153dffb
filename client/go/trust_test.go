//go:build linux

package credbroker

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/credbroker/credbroker/client/go/internal/fake"
)

func TestAPrivateDirectoryBelongsToThisUserOrRootAndIsNotWritableByOthers(t *testing.T) {
	const own, stranger = 1000, 1001
	for _, c := range []struct {
		owner, mode uint32
		want        bool
	}{
		{own, 0o700, true}, {root, 0o755, true}, {own, 0o750, true},
		{stranger, 0o700, false}, {own, 0o770, false}, {root, 0o1777, false}, {own, 0o702, false},
	} {
		if got := isPrivate(c.owner, c.mode, own); got != c.want {
			t.Errorf("%d %o: %v", c.owner, c.mode, got)
		}
	}
}

func TestAServerMustRunAsThisUserRootTheOwnerOrTheExpectedUser(t *testing.T) {
	const own, owner, stranger = 1000, 1001, 1002
	all, expected := func() bool { return true }, uint32(1003)
	for _, uid := range []uint32{root, own, owner} {
		if problem := checkServer(uid, nil, owner, own, all); problem != "" {
			t.Error(problem)
		}
		if checkServer(uid, &expected, owner, own, all) == "" {
			t.Errorf("%d is not the expected user", uid)
		}
	}
	if checkServer(stranger, nil, owner, own, all) == "" {
		t.Error("a stranger is trusted")
	}
	if problem := checkServer(expected, &expected, owner, own, all); problem != "" {
		t.Error(problem)
	}
	unmapped := uint32(overflow)
	if checkServer(overflow, &unmapped, overflow, overflow, func() bool { return false }) == "" {
		t.Error("the number of all users without a mapping is trusted")
	}
	if problem := checkServer(overflow, &unmapped, overflow, overflow, all); problem != "" {
		t.Error(problem)
	}
}

// dialAt listens in a directory with an owner and a mode, and connects.
func dialAt(t *testing.T, owner int, mode os.FileMode, options ...func(*socket)) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: this test needs root, to give directories to other users")
	}
	above, err := os.MkdirTemp("", "trust")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(above) })
	directory := filepath.Join(above, "run")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, "broker.sock")
	listen(t, path)
	for _, err := range []error{os.Chown(directory, owner, -1), os.Chmod(directory, mode)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	at := socket{candidates: []string{path}}
	for _, option := range options {
		option(&at)
	}
	conn, err := at.dial(patient(t))
	if err == nil {
		conn.Close()
	}
	return err
}

func listen(t *testing.T, path string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
}

func TestASocketInADirectoryThatOthersCanWriteToIsNotTrusted(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky, 0o770, 0o702} {
		var untrusted *UntrustedError
		if err := dialAt(t, 0, mode); !errors.As(err, &untrusted) || !strings.Contains(untrusted.Problem, "writable by others") {
			t.Errorf("%v: %v", mode, err)
		}
	}
	if err := dialAt(t, 0, 0o755); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheExpectedServerIsTrusted(t *testing.T) {
	expect := func(uid uint32) func(*socket) { return func(s *socket) { s.brokerUID = &uid } }
	if err := dialAt(t, 0, 0o700, expect(0)); err != nil {
		t.Error(err)
	}
	var untrusted *UntrustedError
	if err := dialAt(t, 0, 0o700, expect(1234)); !errors.As(err, &untrusted) || !strings.Contains(untrusted.Problem, "demands uid 1234") {
		t.Error(err)
	}
}

func TestInASharedDirectoryTheSocketIsInTheFolderOfTheBroker(t *testing.T) {
	directory, err := os.MkdirTemp("", "trust")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	if err := os.Mkdir(filepath.Join(directory, "broker.sock.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	listen(t, filepath.Join(directory, "broker.sock.d", "socket"))
	if err := os.Chmod(directory, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	conn, err := socket{candidates: []string{filepath.Join(directory, "broker.sock")}}.dial(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestAWayWithoutAnEndIsAnError(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if _, err := exposed(loop, true, root, uint32(os.Geteuid())); !errors.Is(err, syscall.ELOOP) {
		t.Error(err)
	}
}

func TestAnUntrustedSocketIsTheErrorOfACall(t *testing.T) {
	broker := fake.NewBroker(t)
	if err := os.Chmod(filepath.Dir(broker.Socket), 0o777); err != nil {
		t.Fatal(err)
	}
	client := connect(t, broker)
	var untrusted *UntrustedError
	if _, err := client.GetCredential(patient(t), Provider("corp")); !errors.As(err, &untrusted) {
		t.Error(err)
	}
	if _, err := client.RESTConfig(patient(t), parisRef); !errors.As(err, &untrusted) {
		t.Error(err)
	}
}

func TestACallWithoutABrokerFailsAtOnceWithTheSocket(t *testing.T) {
	client, err := New(WithSocket("/nowhere/credbroker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.GetCredential(patient(t), Provider("corp"))
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !errors.Is(err, os.ErrNotExist) || unreachable.Socket != "/nowhere/credbroker.sock" {
		t.Errorf("%#v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.RESTConfig(canceled, parisRef); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
