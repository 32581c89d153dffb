package credbroker

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"k8s.io/client-go/rest"
)

const (
	// Longer than the default limit of a plugin run, so that the error of the run arrives.
	answerLimit = 45 * time.Second
	// How long connections to an API server may stay open after their certificate was replaced.
	defaultDrain = 30 * time.Second
)

// A Broker is a client of the credbroker of this machine. Its connections are opened when they are needed, and opened again
// when the broker restarts. It is safe for concurrent use; a program needs one.
type Broker struct {
	pool  *pool
	limit time.Duration
	drain time.Duration
	now   func() instant

	ctx  context.Context
	stop context.CancelCauseFunc
	// Every goroutine of the Broker. The lock keeps one from starting while Close waits.
	life    sync.RWMutex
	running sync.WaitGroup

	mu      sync.Mutex
	sources map[string]*Source
	// Configs that were handed out, by the endpoint that they lead to.
	targets []*target
}

// An Option changes how a Broker works.
type Option func(*settings)

type settings struct {
	address   string
	brokerUID *uint32
	limit     time.Duration
	drain     time.Duration
}

// WithSocket names the socket of the broker: a path, or unix:///absolute/path. The default is CREDBROKER_SOCKET, else that
// of the user's broker in XDG_RUNTIME_DIR if it exists, the directory is the user's and the user is not root, else
// [SystemSocket].
func WithSocket(address string) Option { return func(s *settings) { s.address = address } }

// WithBrokerUID trusts only a broker that runs as uid. The default is CREDBROKER_BROKER_UID, else this user, root, or the
// owner of the directory of the socket.
func WithBrokerUID(uid uint32) Option { return func(s *settings) { s.brokerUID = &uid } }

// WithTimeout sets the longest time that a call waits for its answer, or for the first one of a watch. The default is 45 s;
// a login in which a person takes part may need more.
func WithTimeout(limit time.Duration) Option { return func(s *settings) { s.limit = limit } }

// WithDrain sets how long a connection to an API server may stay open after its certificate was replaced. The default is
// 30 s.
func WithDrain(limit time.Duration) Option { return func(s *settings) { s.drain = limit } }

// New returns a client of the broker at the socket of the environment, or of the options. It does not connect yet. It fails
// if a variable or an option is not valid.
func New(options ...Option) (*Broker, error) {
	chosen := settings{limit: answerLimit, drain: defaultDrain}
	for _, option := range options {
		option(&chosen)
	}
	variable := os.Getenv
	if chosen.address != "" {
		variable = func(name string) string {
			if name == "CREDBROKER_SOCKET" {
				return chosen.address
			}
			return os.Getenv(name)
		}
	}
	at, err := locate(variable, os.Geteuid())
	if err != nil {
		return nil, err
	}
	if chosen.brokerUID != nil {
		at.brokerUID = chosen.brokerUID
	}
	ctx, stop := context.WithCancelCause(context.Background())
	return &Broker{
		pool: newPool(at), limit: chosen.limit, drain: chosen.drain, now: systemClock,
		ctx: ctx, stop: stop, sources: map[string]*Source{},
	}, nil
}

var (
	defaultMu     sync.Mutex
	defaultBroker *Broker
)

// Default returns the Broker of the environment, which all callers share. Do not close it.
func Default() (*Broker, error) {
	defaultMu.Lock()
	defer defaultMu.Unlock()
	if defaultBroker == nil {
		broker, err := New()
		if err != nil {
			return nil, err
		}
		defaultBroker = broker
	}
	return defaultBroker, nil
}

// RESTConfig returns a config for client-go from the [Default] Broker; see [Broker.RESTConfig].
func RESTConfig(ctx context.Context, ref Ref) (*rest.Config, error) {
	broker, err := Default()
	if err != nil {
		return nil, err
	}
	return broker.RESTConfig(ctx, ref)
}

// Close ends everything that follows the broker, and waits for it. Requests of clients that were made of its configs fail
// with [ErrClosed].
func (b *Broker) Close() {
	b.life.Lock()
	b.stop(ErrClosed)
	b.life.Unlock()
	b.running.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, target := range b.targets {
		target.forget()
	}
	b.targets = nil
	b.sources = map[string]*Source{}
	b.pool.close()
}

// GetCredential returns the credential. The broker runs its plugin only if it holds no valid credential. Programs that use
// a credential more than once use [Broker.Source] or [Broker.RESTConfig].
func (b *Broker) GetCredential(ctx context.Context, ref Ref) (*Credential, error) {
	request := &pb.GetCredentialRequest{Ref: ref.toMessage()}
	answer, err := call(ctx, b, func(ctx context.Context, client pb.CredentialBrokerClient) (*pb.GetCredentialResponse, error) {
		return client.GetCredential(ctx, request)
	})
	if err != nil {
		return nil, err
	}
	return receive(answer.GetCredential(), answer.GetCluster(), b.now())
}

// An Outcome says what the broker did about a report. Accept values that this package does not name.
type Outcome string

// The outcomes of a report.
const (
	// The plugin ran and issued another credential.
	OutcomeReplaced Outcome = "REPLACED"
	// The cache already held a newer credential.
	OutcomeAlreadyReplaced Outcome = "ALREADY_REPLACED"
	// The plugin did not run: the credential, or the last run because of a rejection, is too recent.
	OutcomeTooEarly Outcome = "TOO_EARLY"
	// The plugin ran and printed the same credential again.
	OutcomeNothingNewer Outcome = "NOTHING_NEWER"
	// The generation is not a recent one, for example because the broker restarted.
	OutcomeUnknownGeneration Outcome = "UNKNOWN_GENERATION"
)

// A Report is the answer to a report of a rejected credential.
type Report struct {
	// The credential to use from now on.
	Credential *Credential
	// What the broker did.
	Outcome Outcome
	// With OutcomeTooEarly: when a report can start a plugin run.
	RetryAfter time.Duration
}

// ReportRejected reports that the API server answered 401 to generation, and returns the credential to use from now on.
// Clients of a RESTConfig do this themselves.
func (b *Broker) ReportRejected(ctx context.Context, ref Ref, generation string) (*Report, error) {
	request := &pb.ReportRejectedRequest{Ref: ref.toMessage(), Generation: generation}
	answer, err := call(ctx, b, func(ctx context.Context, client pb.CredentialBrokerClient) (*pb.ReportRejectedResponse, error) {
		return client.ReportRejected(ctx, request)
	})
	if err != nil {
		return nil, err
	}
	credential, err := receive(answer.GetCredential(), answer.GetCluster(), b.now())
	if err != nil {
		return nil, err
	}
	return &Report{
		Credential: credential,
		Outcome:    outcomeFrom(answer.GetOutcome()),
		RetryAfter: answer.GetRetryAfter().AsDuration(),
	}, nil
}

// One that this package does not know is a number, without the prefix.
func outcomeFrom(outcome pb.ReportRejectedResponse_Outcome) Outcome {
	return Outcome(strings.TrimPrefix(outcome.String(), "OUTCOME_"))
}

// Source returns the credential as it follows its rotations. All callers with an equal Ref share one, which follows the
// broker until [Broker.Forget] or [Broker.Close]. It does not wait for the broker.
func (b *Broker) Source(ref Ref) *Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	source, ok := b.sources[ref.key]
	if !ok {
		source = newSource(b, ref)
		b.sources[ref.key] = source
	}
	return source
}

// Forget stops following a credential. Clients that were made of its configs fail with [ErrClosed]. Call it for clusters
// that are gone.
func (b *Broker) Forget(ref Ref) {
	b.mu.Lock()
	source := b.sources[ref.key]
	delete(b.sources, ref.key)
	var forgotten, kept []*target
	for _, target := range b.targets {
		if target.source == source {
			forgotten = append(forgotten, target)
		} else {
			kept = append(kept, target)
		}
	}
	b.targets = kept
	b.mu.Unlock()
	for _, target := range forgotten {
		target.forget()
	}
	if source != nil {
		source.stop(ErrClosed)
	}
}

// call makes one call with the deadline of the Broker.
func call[T any](
	ctx context.Context, b *Broker, method func(context.Context, pb.CredentialBrokerClient) (T, error),
) (T, error) {
	var none T
	slot, err := b.pool.call()
	if err != nil {
		return none, err
	}
	limited, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	answer, err := method(limited, pb.NewCredentialBrokerClient(slot.conn))
	if err != nil {
		return none, fromStatus(ctx, err, b.limit, b.pool.socket.String(), slot.dialError())
	}
	return answer, nil
}

// limited returns ctx with the longest time that a caller waits for the first answer of a watch. Its headers come at once.
func (b *Broker) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, b.limit, &TimeoutError{Limit: b.limit})
}

// start runs work until the Broker is closed. It returns false if it is closed already.
func (b *Broker) start(work func()) bool {
	b.life.RLock()
	defer b.life.RUnlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.running.Go(work)
	return true
}
