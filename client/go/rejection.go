package credbroker

import (
	"context"
	"time"
)

// Between two reports of one credential. The broker limits its plugin runs; this limits the calls.
const betweenReports = time.Second

// A rejection is the report that is pending or was answered. There is one at a time, however many requests were rejected.
type rejection struct {
	generation string
	reported   bool
	replaced   bool
}

func (f *followed) reject(generation string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	newest := f.current.Load()
	if newest == nil || newest.generation != generation || f.rejection.generation == generation {
		return
	}
	f.rejection = rejection{generation: generation}
	if !f.reporting {
		f.reporting = f.shared.start(f.report)
	}
}

func (f *followed) replaced(ctx context.Context, generation string, current func() *Credential) *Credential {
	limit := time.NewTimer(replacement)
	defer limit.Stop()
	for {
		changed, _ := f.state()
		newest := current()
		if newest == nil || newest.generation != generation {
			return newest
		}
		// Another rejection, or none: this one was answered, and the time until the next report has passed.
		if last := f.lastRejection(); last.generation != generation || last.reported && !last.replaced {
			return nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return nil
		case <-f.ctx.Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// report sends the reports of rejected generations, one at a time. The credential itself arrives over the watch, because
// with two writers an old answer could overtake a new message.
func (f *followed) report() {
	for {
		f.mu.Lock()
		rejected := f.rejection
		if rejected.generation == "" || rejected.reported {
			f.reporting = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		answer, err := f.shared.report(f.ctx, answerLimit, f.ref, rejected.generation)
		reported := rejection{generation: rejected.generation, reported: true}
		reported.replaced = err == nil && answer.Credential.generation != rejected.generation
		f.replaceRejection(rejected, reported)
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(betweenReports):
		}
		// One that brought another credential stays until that has arrived.
		if !reported.replaced {
			f.replaceRejection(reported, rejection{})
		}
	}
}

// replaceRejection does nothing if another generation was rejected meanwhile.
func (f *followed) replaceRejection(before, after rejection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rejection == before {
		f.rejection = after
		f.notify()
	}
}

func (f *followed) lastRejection() rejection {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rejection
}
