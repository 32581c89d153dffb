package credbroker

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SystemSocket is the socket of the broker of the system.
const SystemSocket = "/run/credbroker/credbroker.sock"

// A socket is one or more paths. The first that exists is that of the broker. They are looked up again for every attempt
// to connect, so that a broker that starts later is found.
type socket struct {
	candidates []string
	// The uid of the only broker that is trusted there.
	brokerUID *uint32
	// XDG_RUNTIME_DIR, if the first candidate is in it.
	runtime string
	// Why the candidate in it is no longer one.
	ignored string
}

// String returns the paths, and what is ignored.
func (s socket) String() string {
	s = s.inUse()
	text := strings.Join(s.candidates, " or ")
	if s.ignored != "" {
		text += " (" + s.ignored + ")"
	}
	return text
}

// inUse is s without the candidate in a directory of another user.
func (s socket) inUse() socket {
	if s.runtime == "" {
		return s
	}
	owner, found := ownerOf(s.runtime)
	if own := os.Geteuid(); found && owner != uint32(own) {
		s.ignored = fmt.Sprintf("XDG_RUNTIME_DIR is ignored, because %s belongs to uid %d and not to uid %d; run `export XDG_RUNTIME_DIR=/run/user/%d` or `unset XDG_RUNTIME_DIR`", s.runtime, owner, own, own)
		s.candidates, s.runtime = s.candidates[1:], ""
	}
	return s
}

// locate returns CREDBROKER_SOCKET if it is set, else the socket of the user's broker if that exists in a directory of the
// user and the user is not root, else that of the system.
func locate(variable func(string) string, uid int) (socket, error) {
	var found socket
	if text := variable("CREDBROKER_BROKER_UID"); text != "" {
		server, err := parseUID(text)
		if err != nil {
			return socket{}, fmt.Errorf("credbroker: CREDBROKER_BROKER_UID is %q, which is not a valid uid; use a number such as 1000", text)
		}
		found.brokerUID = &server
	}
	if text := variable("CREDBROKER_SOCKET"); text != "" {
		path, err := parseAddress(text)
		if err != nil {
			return socket{}, fmt.Errorf("credbroker: CREDBROKER_SOCKET is %w", err)
		}
		found.candidates = []string{path}
		return found, nil
	}
	// The XDG base directory specification ignores relative paths.
	if runtime := variable("XDG_RUNTIME_DIR"); filepath.IsAbs(runtime) && uid != 0 {
		found.runtime = runtime
		found.candidates = append(found.candidates, filepath.Join(runtime, "credbroker/credbroker.sock"))
	}
	found.candidates = append(found.candidates, SystemSocket)
	return found, nil
}

// parseAddress reads a path, or unix:///absolute/path.
func parseAddress(text string) (string, error) {
	path, isURL := strings.CutPrefix(text, "unix:")
	if isURL {
		path = strings.TrimPrefix(path, "//")
	}
	absolute := strings.HasPrefix(path, "/")
	last := path[strings.LastIndex(path, "/")+1:]
	// Other schemes are a mistake that is worth an error.
	scheme := strings.Contains(path, "://") && !absolute
	if last == "" || last == "." || last == ".." || strings.ContainsRune(path, 0) || scheme || (isURL && !absolute) {
		return "", fmt.Errorf("%q, which is not a valid socket address; use a path or unix:///absolute/path", text)
	}
	return path, nil
}

// parseUID reads the number of a user. The highest one is not a user: system calls take it for none.
func parseUID(text string) (uint32, error) {
	uid, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, err
	}
	if uid == 1<<32-1 {
		return 0, strconv.ErrRange
	}
	return uint32(uid), nil
}

// directoryOf returns the directory of a path as it is written: ".." stays, because it may follow a link.
func directoryOf(path string) string {
	switch last := strings.LastIndex(path, "/"); last {
	case -1:
		return "."
	case 0:
		return "/"
	default:
		return path[:last]
	}
}

// firstThatExists skips a candidate only if it certainly does not exist. One that may not be looked at is the one that is
// meant, and the last one is used in any case.
func (s socket) firstThatExists() string {
	last := len(s.candidates) - 1
	for _, path := range s.candidates[:last] {
		if _, err := os.Lstat(path); err == nil || !isAbsent(err) {
			return path
		}
	}
	return s.candidates[last]
}
