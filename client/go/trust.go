package credbroker

import "fmt"

const (
	root = 0
	// Uid that the kernel shows for every user that a user namespace does not map (/proc/sys/kernel/overflowuid).
	overflow         = 65534
	writableByOthers = 0o022
	sticky           = 0o1000
)

// A user is trusted if only it and root can create sockets in the directory.
func isPrivate(owner, mode, own uint32) bool {
	return mode&writableByOthers == 0 && (owner == root || owner == own)
}

// checkServer says what is wrong with a server that runs as uid. It is trusted if it runs as expected, or without that as
// root, as the owner of the directory of the socket, or as this user. A user that the kernel cannot map has no identity.
func checkServer(uid uint32, expected *uint32, owner, own uint32, mapsEveryUser func() bool) string {
	if uid == 1<<32-1 || (uid == overflow && !mapsEveryUser()) {
		return fmt.Sprintf("the process that listens runs as uid %d, which the kernel uses for all users that it cannot map; run the broker as another user", uid)
	}
	switch {
	case expected != nil && *expected == uid:
		return ""
	case expected != nil:
		return fmt.Sprintf("the process that listens runs as uid %d, and CREDBROKER_BROKER_UID or WithBrokerUID demands uid %d; correct that number, or run the broker as that user", uid, *expected)
	case uid == root || uid == owner || uid == own:
		return ""
	}
	return fmt.Sprintf("the process that listens runs as uid %d, not as this user, root, or the owner of the directory; run the broker as one of these, or set CREDBROKER_BROKER_UID to its uid", uid)
}

func directoryWritable(mode uint32) string {
	return fmt.Sprintf("its directory is writable by others (mode %04o); run chmod go-w on it, or mount it read-only, or set listen.sharedDirectory of the broker", mode)
}

func directoryReplaceable(found *exposedPath) string {
	return fmt.Sprintf("other users can make or replace its directory, because %s belongs to uid %d and has mode %04o; set CREDBROKER_BROKER_UID to the uid of the broker, or mount it read-only", found.path, found.owner, found.mode)
}
