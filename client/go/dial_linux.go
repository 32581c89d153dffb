package credbroker

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const directoryFlags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC

// A directory that is open. The descriptor refers to the directory that was checked, even if its path later leads
// elsewhere.
type directory struct {
	file  *os.File
	path  string
	owner uint32
	mode  uint32
}

// dial makes one attempt to connect to the first candidate that exists. The directory of the socket is checked before, and
// the server after connecting; nothing is sent before both.
func (s socket) dial(ctx context.Context) (net.Conn, error) {
	s = s.inUse()
	path := s.firstThatExists()
	name := filepath.Base(path)
	at, err := openDirectory(unix.AT_FDCWD, directoryOf(path), directoryOf(path), 0)
	if err != nil {
		return nil, err
	}
	defer func() { at.file.Close() }()
	own := uint32(os.Geteuid())
	if !isPrivate(at.owner, at.mode, own) {
		if at, name, err = s.choose(at, path, own); err != nil {
			return nil, err
		}
	}
	conn, err := at.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	server, err := peerUID(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if problem := checkServer(server, s.brokerUID, at.owner, own, mapsEveryUser); problem != "" {
		conn.Close()
		return nil, &UntrustedError{Path: path, Problem: problem}
	}
	return conn, nil
}

// choose returns the directory to connect in, and the name of the socket there, where the directory is not one that only
// this user and root can change. Who listens must be checked too.
//
// In a directory that others can write to, that is the broker's own directory. A directory of another user is trusted if the
// mount is read-only, if a server is expected, or if only that user, this one and root can have made what its path leads to.
func (s socket) choose(at *directory, path string, own uint32) (*directory, string, error) {
	name := filepath.Base(path)
	if at.mode&writableByOthers != 0 {
		folder, err := openDirectory(int(at.file.Fd()), name+".d", at.path+"/"+name+".d", unix.O_NOFOLLOW)
		switch {
		case err == nil:
			at.file.Close()
			at, name = folder, "socket"
		case !isAbsent(err) && !errors.Is(err, syscall.ELOOP):
			return at, name, err
		}
	}
	if isPrivate(at.owner, at.mode, own) || at.isReadOnly() {
		return at, name, nil
	}
	if at.mode&writableByOthers != 0 {
		return at, name, &UntrustedError{Path: path, Problem: directoryWritable(at.mode)}
	}
	// Its process proves to be the expected one when the connection is made.
	if s.brokerUID != nil {
		return at, name, nil
	}
	found, err := exposed(at.path, false, root, own, at.owner)
	switch {
	case err != nil:
		return at, name, err
	case found != nil:
		return at, name, &UntrustedError{Path: path, Problem: directoryReplaceable(found)}
	case !at.isStillThere():
		return at, name, &os.PathError{Op: "open", Path: at.path, Err: syscall.ENOENT}
	}
	return at, name, nil
}

func openDirectory(parent int, name, path string, flags int) (*directory, error) {
	descriptor, err := unix.Openat(parent, name, directoryFlags|flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(descriptor), path)
	var stat unix.Stat_t
	if err := unix.Fstat(descriptor, &stat); err != nil {
		file.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return &directory{file: file, path: path, owner: stat.Uid, mode: stat.Mode & 0o7777}, nil
}

// connect goes through the descriptor, so that the directory cannot be replaced after the check. This also lifts the limit
// of 107 bytes on the path of a socket.
func (d *directory) connect(ctx context.Context, name string) (*net.UnixConn, error) {
	const descriptors = "/proc/self/fd"
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(descriptors, strconv.Itoa(int(d.file.Fd())), name))
	if errors.Is(err, syscall.ENOENT) {
		// A chroot without /proc has only the path.
		if _, absent := os.Stat(descriptors); absent != nil {
			conn, err = dialer.DialContext(ctx, "unix", d.path+"/"+name)
		}
	}
	if err != nil {
		var call *os.SyscallError
		if errors.As(err, &call) {
			err = &os.PathError{Op: "connect", Path: d.path + "/" + name, Err: call.Err}
		}
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// isStillThere says whether the path still leads to this directory.
func (d *directory) isStillThere() bool {
	held, err := d.file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(d.path)
	return err == nil && os.SameFile(held, found)
}

func (d *directory) isReadOnly() bool {
	var stat unix.Statfs_t
	return unix.Fstatfs(int(d.file.Fd()), &stat) == nil && stat.Flags&unix.ST_RDONLY != 0
}

func isReadOnly(path string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(path, &stat) == nil && stat.Flags&unix.ST_RDONLY != 0
}

// peerUID returns the user that the process that listens runs as.
func peerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var asked error
	if err := raw.Control(func(descriptor uintptr) {
		peer, asked = unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if asked != nil {
		return 0, os.NewSyscallError("getsockopt", asked)
	}
	return peer.Uid, nil
}

// mapsEveryUser says whether this user namespace maps every uid to itself. Otherwise the kernel shows each user that it
// does not map as uid 65534.
func mapsEveryUser() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(users))
	return err == nil && strings.Join(fields, " ") == "0 0 4294967295"
}
