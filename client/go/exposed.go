//go:build linux || darwin

package credbroker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// As many links as Linux follows.
const mostLinks = 40

// An exposedPath is a directory or a link with which a user who is not trusted can change where a path leads.
type exposedPath struct {
	path  string
	owner uint32
	mode  uint32
}

// exposed finds the first directory or link with which a user who is not one of trusted can have made or changed what path
// leads to.
//
// A directory is safe if it belongs to a trusted user and others cannot write to it. In a sticky one others cannot rename
// what belongs to a trusted user, but they can make what is not there yet; it counts as safe if stickyIsSafe. Owner and mode
// do not count on a mount that is read-only for this process.
func exposed(path string, stickyIsSafe bool, trusted ...uint32) (*exposedPath, error) {
	// Not with filepath.Abs, which takes ".." for a way back, also after a link.
	if !filepath.IsAbs(path) {
		working, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		path = working + "/" + path
	}
	here, names, links := "/", split(path), 0
	for {
		stat, err := lstat(here)
		if err != nil {
			return nil, err
		}
		mode := uint32(stat.Mode)
		safe := slices.Contains(trusted, stat.Uid) && (mode&writableByOthers == 0 || stickyIsSafe && mode&sticky != 0)
		if !safe && !isReadOnly(here) {
			return &exposedPath{path: here, owner: stat.Uid, mode: mode & 0o7777}, nil
		}
		if len(names) == 0 {
			return nil, nil
		}
		name := names[0]
		names = names[1:]
		if name == ".." {
			here = filepath.Dir(here)
			continue
		}
		next := filepath.Join(here, name)
		if stat, err = lstat(next); err != nil {
			return nil, err
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFLNK {
			here = next
			continue
		}
		if links++; links > mostLinks {
			return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		if !slices.Contains(trusted, stat.Uid) && !isReadOnly(here) {
			return &exposedPath{path: next, owner: stat.Uid, mode: uint32(stat.Mode) & 0o7777}, nil
		}
		target, err := os.Readlink(next)
		if err != nil {
			return nil, err
		}
		if filepath.IsAbs(target) {
			here = "/"
		}
		names = append(split(target), names...)
	}
}

// The names of a path. ".." is kept: after a link it does not lead back.
func split(path string) []string {
	names := strings.Split(path, "/")
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || name == "." })
}

// ownerOf returns the owner of what path leads to, if there is something.
func ownerOf(path string) (uint32, bool) {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	return stat.Uid, err == nil
}

func lstat(path string) (*unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return nil, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return &stat, nil
}
