package credbroker

import (
	"errors"

	"google.golang.org/grpc/codes"
)

// A Reason says why a request failed, or why a credential or cluster is not available. Reasons are stable; messages can
// change. Accept values that this package does not name: a later broker has more.
type Reason string

// The reasons of the broker, as in docs/errors.md.
const (
	// Several providers have this name, and the request does not say which definition it means.
	ReasonAmbiguousProvider Reason = "AMBIGUOUS_PROVIDER"
	// The plugin printed a time that is not RFC 3339, or a certificate with an invalid one.
	ReasonBadTimestamp Reason = "BAD_TIMESTAMP"
	// The client certificate had expired when the plugin printed it.
	ReasonCertExpired Reason = "CERT_EXPIRED"
	// The caller's cluster is not the one that the broker knows for this credential.
	ReasonClusterMismatch Reason = "CLUSTER_MISMATCH"
	// The ClusterProfile has no usable endpoint, or its extensions are not valid.
	ReasonClusterProfileInvalid Reason = "CLUSTER_PROFILE_INVALID"
	// The broker is shutting down.
	ReasonDraining Reason = "DRAINING"
	// The plugin's input (KUBERNETES_EXEC_INFO) exceeds the kernel's limit for one variable.
	ReasonExecInfoTooLarge Reason = "EXEC_INFO_TOO_LARGE"
	// The credential had expired when the plugin printed it.
	ReasonExpiredOutput Reason = "EXPIRED_OUTPUT"
	// The request needs ClusterProfiles, and the broker is not configured to read any.
	ReasonHubNotConfigured Reason = "HUB_NOT_CONFIGURED"
	// The hub has not been read, so the broker does not know whether the ClusterProfile exists.
	ReasonHubUnavailable Reason = "HUB_UNAVAILABLE"
	// The caller selects an identity with a variable that the plugin would not receive.
	ReasonIdentityConflict Reason = "IDENTITY_CONFLICT"
	// The plugin needs a user.
	ReasonInteractionRequired Reason = "INTERACTION_REQUIRED"
	// The request is not valid. The same request never succeeds.
	ReasonInvalidRequest Reason = "INVALID_REQUEST"
	// The issuer asked for fewer requests, so the broker pauses runs for it.
	ReasonIssuerThrottled Reason = "ISSUER_THROTTLED"
	// The private key does not belong to the client certificate.
	ReasonKeyMismatch Reason = "KEY_MISMATCH"
	// The plugin printed no usable credential.
	ReasonNoCredential Reason = "NO_CREDENTIAL"
	// No provider serves this ClusterProfile.
	ReasonNoMatchingProvider Reason = "NO_MATCHING_PROVIDER"
	// The plugin's output is not one valid ExecCredential.
	ReasonOutputInvalid Reason = "OUTPUT_INVALID"
	// The plugin's output exceeds the limit.
	ReasonOutputTooLarge Reason = "OUTPUT_TOO_LARGE"
	// A limit of the broker is reached. The metadata key `limit` names it.
	ReasonOverloaded Reason = "OVERLOADED"
	// This process is not allowed to use the broker.
	ReasonPeerDenied Reason = "PEER_DENIED"
	// The plugin exited with a code other than 0.
	ReasonPluginExit Reason = "PLUGIN_EXIT"
	// The plugin's executable does not exist or cannot be read.
	ReasonPluginNotFound Reason = "PLUGIN_NOT_FOUND"
	// The plugin was terminated by a signal.
	ReasonPluginSignal Reason = "PLUGIN_SIGNAL"
	// The plugin ran longer than its limit.
	ReasonPluginTimeout Reason = "PLUGIN_TIMEOUT"
	// The plugin requested its own credential from the broker.
	ReasonRecursion Reason = "RECURSION"
	// The request was not received completely in time.
	ReasonRequestIncomplete Reason = "REQUEST_INCOMPLETE"
	// The deadline of the caller passed before the plugin run ended. The run continues.
	ReasonRunPending Reason = "RUN_PENDING"
	// The plugin could not be started.
	ReasonSpawnFailed Reason = "SPAWN_FAILED"
	// The ClusterProfile does not exist, or the broker does not read it.
	ReasonUnknownClusterProfile Reason = "UNKNOWN_CLUSTER_PROFILE"
	// The broker does not know this definition of the provider.
	ReasonUnknownDefinition Reason = "UNKNOWN_DEFINITION"
	// No provider has this name.
	ReasonUnknownProvider Reason = "UNKNOWN_PROVIDER"
	// The caller sent a variable that could make the plugin run other code or trust another issuer.
	ReasonVariableNotAllowed Reason = "VARIABLE_NOT_ALLOWED"
	// The plugin's output has another apiVersion than the provider is configured with.
	ReasonVersionMismatch Reason = "VERSION_MISMATCH"
	// While the request waited or the watch was open, the configuration of the provider was changed or removed, or the credential
	// was evicted. Credentials from before are no longer to be used.
	ReasonProviderChanged Reason = "PROVIDER_CHANGED"
	// The plugin policy or the provider's `sha256` does not permit the plugin, or other users can replace its file.
	ReasonPluginNotAllowed Reason = "PLUGIN_NOT_ALLOWED"
	// The broker does not follow a kubeconfig with this context, or the context has another definition now.
	ReasonUnknownContext Reason = "UNKNOWN_CONTEXT"
)

// ReasonOf returns the reason of an error of the broker, or the empty string if it has none.
func ReasonOf(err error) Reason {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Reason
	}
	return ""
}

// code returns the gRPC status code that goes with a reason.
func (r Reason) code() codes.Code {
	switch r {
	case ReasonExecInfoTooLarge, ReasonInvalidRequest:
		return codes.InvalidArgument
	case ReasonNoMatchingProvider, ReasonUnknownClusterProfile, ReasonUnknownContext, ReasonUnknownDefinition, ReasonUnknownProvider:
		return codes.NotFound
	case ReasonAmbiguousProvider, ReasonClusterProfileInvalid, ReasonHubNotConfigured, ReasonIdentityConflict,
		ReasonInteractionRequired, ReasonPluginNotAllowed, ReasonPluginNotFound, ReasonRecursion:
		return codes.FailedPrecondition
	case ReasonClusterMismatch, ReasonPeerDenied, ReasonVariableNotAllowed:
		return codes.PermissionDenied
	case ReasonOverloaded:
		return codes.ResourceExhausted
	case ReasonRequestIncomplete:
		return codes.DeadlineExceeded
	}
	return codes.Unavailable
}
