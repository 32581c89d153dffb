package credbroker

import (
	"context"
	"sync"
)

// Tasks are goroutines that end together.
type tasks struct {
	ctx  context.Context
	stop context.CancelCauseFunc
	// Keeps one from starting after end.
	life    sync.RWMutex
	running sync.WaitGroup
}

func newTasks() *tasks {
	ctx, stop := context.WithCancelCause(context.Background())
	return &tasks{ctx: ctx, stop: stop}
}

// start runs work. It returns false after end. Work ends with ctx.
func (t *tasks) start(work func()) bool {
	t.life.RLock()
	defer t.life.RUnlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.running.Go(work)
	return true
}

// end ends all with ErrClosed. Wait for running afterwards.
func (t *tasks) end() {
	t.life.Lock()
	defer t.life.Unlock()
	t.stop(ErrClosed)
}
