//go:build linux

package credbroker

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The table of the sockets that clients trust, which the Rust library and the shim have too.
const trustTable = "../testdata/trust.json"

type trustCase struct {
	Name, Client, Server, BrokerUID, Socket, Listens, RuntimeDirectory, ReadOnly, Verdict string

	Says []string
	Tree []struct{ Dir, Link, To, Owner, Mode string }
}

func TestTheTableOfTrustedSocketsHolds(t *testing.T) {
	text, err := os.ReadFile(trustTable)
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Users map[string]int
		Cases []trustCase
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) == 0 {
		t.Fatal("the table is empty")
	}
	if os.Geteuid() != 0 {
		// Without root, the client is this user.
		table.Users["client"] = os.Geteuid()
	}
	for _, c := range table.Cases {
		t.Run(c.Name, func(t *testing.T) { c.run(t, table.Users) })
	}
}

func (c trustCase) run(t *testing.T, users map[string]int) {
	base := c.place(t, users)
	at := func(path string) string {
		if path == "" {
			return ""
		}
		return base + "/" + path // Not cleaned: "..", which may follow a link, stays.
	}
	listens := at(c.Listens)
	if listens == "" {
		listens = at(c.Socket)
	}
	listener, err := net.Listen("unix", listens)
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	must(t, os.Chmod(listens, 0o666))
	raw, err := listener.(*net.UnixListener).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(descriptor uintptr) {
		// The kernel records the user of the last call.
		asUser(t, users[c.Server], func() { err = unix.Listen(int(descriptor), 16) })
	}))
	must(t, err)
	if c.ReadOnly != "" {
		mountReadOnly(t, at(c.ReadOnly))
	}
	values := map[string]string{"CREDBROKER_SOCKET": at(c.Socket), "XDG_RUNTIME_DIR": at(c.RuntimeDirectory)}
	if c.BrokerUID != "" {
		values["CREDBROKER_BROKER_UID"] = strconv.Itoa(users[c.BrokerUID])
	}
	socket, err := locate(variables(values), users[c.Client])
	must(t, err)
	ctx, said := patient(t), ""
	asUser(t, users[c.Client], func() {
		var conn net.Conn
		if conn, err = socket.dial(ctx); err == nil {
			conn.Close()
		}
		said = socket.String()
	})
	verdict := "trusted"
	var untrusted *UntrustedError
	switch {
	case errors.As(err, &untrusted):
		verdict, said = "untrusted", err.Error()
	case err != nil:
		verdict = "ignored"
	}
	if verdict != c.Verdict {
		t.Fatalf("%s, not %s: %v, %s", verdict, c.Verdict, err, said)
	}
	for _, part := range c.Says {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not in: %s", part, said)
		}
	}
}

// place makes the tree.
func (c trustCase) place(t *testing.T, users map[string]int) string {
	all := []string{c.Client, c.Server}
	for _, item := range c.Tree {
		all = append(all, item.Owner)
	}
	for _, user := range all {
		if os.Geteuid() != 0 && (user != "client" || c.ReadOnly != "") {
			t.Skip("SKIPPED: this case needs root, to act as other users")
		}
	}
	base := trustBase(t)
	for _, item := range c.Tree {
		path := filepath.Join(base, item.Dir+item.Link)
		if item.Link != "" {
			must(t, os.Symlink(item.To, path))
		} else {
			must(t, os.Mkdir(path, 0o700))
		}
		must(t, os.Lchown(path, users[item.Owner], users[item.Owner]))
		if item.Link == "" {
			mode, err := strconv.ParseUint(item.Mode, 8, 32)
			must(t, err)
			must(t, unix.Chmod(path, uint32(mode)))
		}
	}
	return base
}

// trustBase returns a directory of this user; for root one above which only root can write, which /tmp is not.
func trustBase(t *testing.T) string {
	above := []string{"/var/lib", "/opt", "/run"}
	if os.Geteuid() != 0 {
		above = []string{""}
	}
	for _, above := range above {
		if stat, err := lstat(above); above != "" && (err != nil || stat.Uid != 0 || stat.Mode&writableByOthers != 0) {
			continue
		}
		base, err := os.MkdirTemp(above, "trust")
		if err != nil {
			continue
		}
		t.Cleanup(func() { os.RemoveAll(base) })
		if os.Geteuid() == 0 {
			must(t, os.Chmod(base, 0o755))
		}
		return base
	}
	t.Skip("SKIPPED: there is no directory above which only root can write")
	return ""
}

func mountReadOnly(t *testing.T, path string) {
	if err := exec.Command("mount", "--bind", path, path).Run(); err != nil {
		t.Skip("SKIPPED: this process cannot mount:", err)
	}
	t.Cleanup(func() { exec.Command("umount", "--lazy", path).Run() })
	must(t, exec.Command("mount", "-o", "remount,bind,ro", path).Run())
}

// asUser calls act on a thread of another user, which ends with it. Only root can.
func asUser(t *testing.T, uid int, act func()) {
	if uid == os.Geteuid() {
		act()
		return
	}
	const keep = ^uintptr(0)
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // The thread ends with the goroutine, because it stays locked.
		_, _, failed := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		if failed == 0 {
			_, _, failed = unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(uid), keep)
		}
		if failed == 0 {
			_, _, failed = unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep)
		}
		if failed == 0 {
			act()
		}
		done <- failed
	}()
	if failed := <-done; failed != 0 {
		t.Fatal(failed)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
