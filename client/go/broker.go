package credbroker

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/client-go/rest"
)

const (
	// Longer than the default limit of a plugin run, so that the error of the run arrives.
	answerLimit = 45 * time.Second
	// How long connections to an API server may stay open after their certificate was replaced.
	defaultDrain = 30 * time.Second
)

// A Broker is a client of the credbroker of this machine. Its connection is opened when it is needed, and opened again when
// the broker restarts. It is safe for concurrent use. A program needs one; several with the same socket share the connection
// and follow each credential once.
type Broker struct {
	*tasks
	shared *shared
	limit  time.Duration
	drain  time.Duration
	closed sync.Once

	mu sync.Mutex
	// Those that are not closed.
	sources map[*Source]struct{}
	// One for each Ref that RESTConfig or Authenticate was called with, until Forget.
	configs map[string]*Source
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
// a login in which a user takes part may need more.
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
	return &Broker{
		tasks: newTasks(), shared: share(at), limit: chosen.limit, drain: chosen.drain,
		sources: map[*Source]struct{}{}, configs: map[string]*Source{},
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

// Close closes the Sources and Clusters of this Broker, and waits for everything that it has started. Requests of clients
// that were made of its configs fail with [ErrClosed], unless another Broker with the same socket uses the credential.
func (b *Broker) Close() {
	b.closed.Do(func() {
		b.end()
		b.mu.Lock()
		open := slices.Collect(maps.Keys(b.sources))
		b.mu.Unlock()
		for _, source := range open {
			source.Close()
		}
		b.running.Wait()
		b.shared.leave()
	})
}

// A GetOption says which credential [Broker.GetCredential] needs.
type GetOption func(*pb.GetCredentialRequest)

// MinLifetime is for work that takes this long: the broker also runs its plugin if the credential that it holds does not live
// as long. If the plugin cannot do better, the credential that lives longest is returned: compare [Credential.ExpiresAt].
func MinLifetime(lifetime time.Duration) GetOption {
	return func(request *pb.GetCredentialRequest) { request.MinLifetime = durationpb.New(lifetime) }
}

// GetCredential returns the credential. The broker runs its plugin only if it holds no valid credential. Programs that use
// a credential more than once use [Broker.Source] or [Broker.RESTConfig].
func (b *Broker) GetCredential(ctx context.Context, ref Ref, options ...GetOption) (*Credential, error) {
	request := &pb.GetCredentialRequest{Ref: ref.toMessage()}
	for _, option := range options {
		option(request)
	}
	answer, err := call(ctx, b.shared, b.limit, ref.said, func(ctx context.Context, client pb.CredentialBrokerClient) (*pb.GetCredentialResponse, error) {
		return client.GetCredential(ctx, request)
	})
	if err != nil {
		return nil, err
	}
	return receive(answer.GetCredential(), answer.GetCluster(), b.shared.now())
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
	return b.shared.report(ctx, b.limit, ref, generation)
}

func (s *shared) report(ctx context.Context, limit time.Duration, ref Ref, generation string) (*Report, error) {
	request := &pb.ReportRejectedRequest{Ref: ref.toMessage(), Generation: generation}
	answer, err := call(ctx, s, limit, ref.said, func(ctx context.Context, client pb.CredentialBrokerClient) (*pb.ReportRejectedResponse, error) {
		return client.ReportRejected(ctx, request)
	})
	if err != nil {
		return nil, err
	}
	credential, err := receive(answer.GetCredential(), answer.GetCluster(), s.now())
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

// Source returns the credential as it follows its rotations, until [Source.Close] or [Broker.Close]. Sources with an equal
// Ref follow the broker once. It does not wait for the broker.
func (b *Broker) Source(ref Ref) *Source {
	b.mu.Lock()
	made := b.open(ref)
	b.mu.Unlock()
	return made.unlessClosed()
}

// configSource returns the Source of the configs of a Ref, which stays open until Forget.
func (b *Broker) configSource(ref Ref) *Source {
	b.mu.Lock()
	found, ok := b.configs[ref.key]
	if !ok {
		found = b.open(ref)
		b.configs[ref.key] = found
	}
	b.mu.Unlock()
	return found.unlessClosed()
}

// The caller holds the lock.
func (b *Broker) open(ref Ref) *Source {
	made := newSource(b, ref)
	b.sources[made] = struct{}{}
	return made
}

// Forget ends what [Broker.RESTConfig] and [Broker.Authenticate] began for a Ref: call it for clusters that are gone.
// Clients that were made of these configs fail with [ErrClosed], unless a [Source] of the same credential is open.
func (b *Broker) Forget(ref Ref) {
	b.mu.Lock()
	source := b.configs[ref.key]
	delete(b.configs, ref.key)
	b.mu.Unlock()
	if source != nil {
		source.Close()
	}
}

// call makes one call with a limit. what is what the caller waits for.
func call[T any](
	ctx context.Context, s *shared, limit time.Duration, what string,
	method func(context.Context, pb.CredentialBrokerClient) (T, error),
) (T, error) {
	var none T
	client, err := s.link.client()
	if err != nil {
		return none, err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := method(limited, client)
	if err == nil {
		return answer, nil
	}
	if ctx.Err() != nil {
		return none, stopped(ctx, what, lastOf(err, s.link.socket.String(), s.link.dialError()))
	}
	return none, fromStatus(err, limit, s.link.socket.String(), s.link.dialError())
}

// limited returns ctx with the longest time that a caller waits for the first answer of a watch. Its headers come immediately.
func (b *Broker) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, b.limit, &TimeoutError{Limit: b.limit})
}
