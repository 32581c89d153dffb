package credbroker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The domain of the ErrorInfo of a broker.
const domain = "credbroker.io"

// ErrClosed is the error of a Broker or a Source that was closed, and of a credential that was forgotten.
var ErrClosed = errors.New("credbroker: closed")

// ErrExpired says that the last credential has expired.
var ErrExpired = errors.New("credbroker: the last credential has expired")

// An Error is what the broker answered. Find it with errors.As, or use [ReasonOf].
type Error struct {
	// The stable reason. Empty: the broker gave none.
	Reason Reason
	// The gRPC status code.
	Code codes.Code
	// The cause and the remedy, for people.
	Message string
	// The time after which another request may succeed. 0: not before something changes, or unknown.
	RetryAfter time.Duration
	// The provider, where one is concerned.
	Provider string
	// The ClusterProfile, as NAMESPACE/NAME, where one is concerned.
	ClusterProfile string
	// The context of a kubeconfig, where one is concerned.
	Context string
	// The id of the credential in the cache of the broker, as `credbroker status` shows it.
	ID string
	// With ReasonOverloaded: the limit that is reached, by its key in the configuration such as `limits.connections`, or in
	// words such as `silent connections` if it is fixed.
	Limit string
}

func (e *Error) Error() string { return "credbroker: " + e.Message }

// An UnreachableError says that no broker answers: none listens, or it went away before it answered. Start or restart it.
type UnreachableError struct {
	// The paths that were tried.
	Socket string
	// The error of the last attempt.
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("credbroker: no broker answers on %s: %v", e.Socket, e.Err)
}

// Unwrap returns the error of the last attempt.
func (e *UnreachableError) Unwrap() error { return e.Err }

// An UntrustedError says that the process that listens on the socket may be an impostor. Nothing was sent to it. A user
// has to look at it.
type UntrustedError struct {
	// The socket.
	Path string
	// The problem and its remedy.
	Problem string
}

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("credbroker: the socket %s is not trusted: %s", e.Path, e.Problem)
}

// A TimeoutError says that the broker did not answer in time. A plugin run that is in flight goes on: try again later.
type TimeoutError struct {
	// The time that was allowed.
	Limit time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("credbroker: no answer within %v", e.Limit)
}

// Timeout returns true, as for the errors of package net.
func (e *TimeoutError) Timeout() bool { return true }

// Is says that a TimeoutError is a context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// An UnusableError says that the credential or the endpoint from the broker cannot be used. A user has to look at it.
type UnusableError struct {
	// What is wrong. Never a part of a secret.
	Problem string
}

func (e *UnusableError) Error() string {
	return "credbroker: the broker's answer cannot be used: " + e.Problem
}

// fromStatus turns the error of a call into one of the errors above. lastDial is the error of the last attempt to connect.
func fromStatus(err error, limit time.Duration, socket string, lastDial error) error {
	from, ok := status.FromError(err)
	if !ok {
		return &UnreachableError{Socket: socket, Err: err}
	}
	failed, ours := fromDetails(from)
	switch {
	case ours:
		return failed
	case from.Code() == codes.DeadlineExceeded && limit > 0:
		return &TimeoutError{Limit: limit}
	case from.Code() == codes.Unavailable:
		// A broker adds its details. Without them, the connection ended or there was none.
		if lastDial == nil {
			lastDial = errors.New(from.Message())
		}
		return fromDial(lastDial, socket)
	}
	return failed
}

func fromDial(err error, socket string) error {
	var untrusted *UntrustedError
	if errors.As(err, &untrusted) {
		return untrusted
	}
	return &UnreachableError{Socket: socket, Err: err}
}

// lastOf returns what is known about a call that its caller has ended: what the broker answered, or why there is no
// connection. nil: nothing.
func lastOf(err error, socket string, lastDial error) error {
	from, ok := status.FromError(err)
	if failed, ours := fromDetails(from); ok && ours {
		return failed
	}
	if lastDial == nil {
		return nil
	}
	return fromDial(lastDial, socket)
}

// fromDetails also returns whether there is an ErrorInfo of a broker, with a known reason or an unknown one.
func fromDetails(from *status.Status) (*Error, bool) {
	failed := &Error{Code: from.Code(), Message: from.Message()}
	ours := false
	for _, detail := range from.Details() {
		switch info := detail.(type) {
		case *errdetails.ErrorInfo:
			if info.GetDomain() != domain {
				continue
			}
			ours = true
			failed.Reason = Reason(info.GetReason())
			failed.concerns(info.GetMetadata())
		case *errdetails.RetryInfo:
			failed.RetryAfter = info.GetRetryDelay().AsDuration()
		}
	}
	if failed.Reason != "" {
		// The reason at the end of the message is for clients that do not decode details.
		failed.Message = strings.TrimSuffix(failed.Message, fmt.Sprintf(" (%s)", failed.Reason))
	}
	return failed, ours
}

func (e *Error) concerns(metadata map[string]string) {
	e.Provider = metadata["provider"]
	e.ClusterProfile = metadata["cluster"]
	e.Context = metadata["context"]
	e.ID = metadata["id"]
	e.Limit = metadata["limit"]
}

// failureFrom reads the failure that a state or a watch reports.
func failureFrom(message *pb.Failure) *Error {
	if message == nil {
		return nil
	}
	failed := &Error{Code: codes.Unknown, Message: message.GetMessage(), RetryAfter: message.GetRetryAfter().AsDuration()}
	if reason := message.GetReason(); reason != pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
		failed.Reason = Reason(reason.String())
		failed.Code = failed.Reason.code()
	}
	failed.concerns(message.GetMetadata())
	return failed
}

// mayBeStarting says that there is no broker now, but one may come: nothing listens yet, its queue is full, or the previous
// broker is shutting down.
func mayBeStarting(err error) bool {
	if ReasonOf(err) == ReasonDraining {
		return true
	}
	var unreachable *UnreachableError
	return errors.As(err, &unreachable) && !errors.Is(unreachable.Err, fs.ErrPermission)
}

// withdraws says that no credential so far is to be used: the definition that they come from was changed or removed, or the
// broker has evicted the last one. The next watch brings the next one. UNKNOWN_PROVIDER and UNKNOWN_DEFINITION do not say that:
// a broker that starts while a kubeconfig is written does not know its users at first.
func withdraws(err error) bool { return ReasonOf(err) == ReasonProviderChanged }

// isAbsent says that a path does not exist.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
