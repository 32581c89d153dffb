package credbroker

import (
	"fmt"
	"sync"
)

// What all Brokers of this process with the same socket share: the connection, and the credentials that they follow.
type shared struct {
	*tasks
	key  string
	link *link
	now  func() instant

	mu sync.Mutex
	// By the keys of their Refs.
	followed map[string]*followed
	// The number of Brokers. Guarded by the lock of the process.
	users int
}

var (
	sharedMu  sync.Mutex
	allShared = map[string]*shared{}
)

// share returns what Brokers with this socket share. Each calls leave once.
func share(at socket) *shared {
	key := fmt.Sprintf("%q %q", at.candidates, at.runtime)
	if at.brokerUID != nil {
		key += fmt.Sprintf(" %d", *at.brokerUID)
	}
	sharedMu.Lock()
	defer sharedMu.Unlock()
	found, ok := allShared[key]
	if !ok {
		tasks := newTasks()
		found = &shared{tasks: tasks, key: key, link: newLink(at, tasks), now: systemClock, followed: map[string]*followed{}}
		allShared[key] = found
	}
	found.users++
	return found
}

// leave ends all for the last Broker, and waits for it.
func (s *shared) leave() {
	sharedMu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(allShared, s.key)
	}
	sharedMu.Unlock()
	if last {
		s.end()
		s.running.Wait()
		s.link.close()
	}
}

// follow returns the credential of a Ref as it is followed. Each user calls leave once.
func (s *shared) follow(ref Ref) *followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.followed[ref.key]
	if !ok {
		found = newFollowed(s, ref)
		s.followed[ref.key] = found
	}
	found.users++
	return found
}

// leave stops to follow the credential for the last user. Clients that were made of its configs fail.
func (f *followed) leave() {
	f.shared.mu.Lock()
	f.users--
	last := f.users == 0
	var targets []*target
	if last {
		delete(f.shared.followed, f.ref.key)
		targets, f.targets = f.targets, nil
	}
	f.shared.mu.Unlock()
	if !last {
		return
	}
	f.stop(ErrClosed)
	for _, target := range targets {
		target.forget()
	}
}
