package credbroker

import (
	"context"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// dial makes one attempt to connect to the first candidate that exists. macOS has no descriptors of directories that a
// connection can go through, so only a directory whose whole path others cannot change is trusted.
func (s socket) dial(ctx context.Context) (net.Conn, error) {
	s = s.inUse()
	path := s.firstThatExists()
	stat, err := lstat(directoryOf(path))
	if err != nil {
		return nil, err
	}
	own, mode := uint32(os.Geteuid()), uint32(stat.Mode)&0o7777
	if mode&writableByOthers != 0 && !isReadOnly(directoryOf(path)) {
		return nil, &UntrustedError{Path: path, Problem: directoryWritable(mode)}
	}
	if s.brokerUID == nil {
		found, err := exposed(directoryOf(path), isPrivate(stat.Uid, mode, own), root, own, stat.Uid)
		if err != nil {
			return nil, err
		}
		if found != nil {
			return nil, &UntrustedError{Path: path, Problem: directoryReplaceable(found)}
		}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	server, err := peerUID(conn.(*net.UnixConn))
	if err != nil {
		conn.Close()
		return nil, err
	}
	if problem := checkServer(server, s.brokerUID, stat.Uid, own, func() bool { return true }); problem != "" {
		conn.Close()
		return nil, &UntrustedError{Path: path, Problem: problem}
	}
	return conn, nil
}

func isReadOnly(path string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(path, &stat) == nil && stat.Flags&unix.MNT_RDONLY != 0
}

func peerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Xucred
	var asked error
	if err := raw.Control(func(descriptor uintptr) {
		peer, asked = unix.GetsockoptXucred(int(descriptor), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if asked != nil {
		return 0, os.NewSyscallError("getsockopt", asked)
	}
	return peer.Uid, nil
}
