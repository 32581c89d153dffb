package credbroker

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/protobuf/proto"
)

// A ClusterName is the namespace and the name of a ClusterProfile object.
type ClusterName struct{ Namespace, Name string }

// String returns NAMESPACE/NAME.
func (n ClusterName) String() string { return n.Namespace + "/" + n.Name }

// Ref returns the credential of the cluster.
func (n ClusterName) Ref() Ref { return ClusterProfile(n.Namespace, n.Name) }

// Readiness says whether there is a credential for a cluster. Accept values that this package does not name.
type Readiness string

// The readiness of a cluster.
const (
	// The broker holds a valid credential.
	Ready Readiness = "READY"
	// The plugin has not run yet. The first request runs it.
	Idle Readiness = "IDLE"
	// There is no credential; the plugin is running.
	Fetching Readiness = "FETCHING"
	// There is no credential; the last run failed.
	Failed Readiness = "FAILED"
	// No provider issues credentials for it, the profile is not usable, or the plugin is not installed.
	Unusable Readiness = "UNUSABLE"
)

// A ClusterState is a ClusterProfile, and what the broker knows about it. It holds no secrets. Do not change it: all
// readers share it.
type ClusterState struct {
	// Its namespace and name.
	ClusterName
	// spec.displayName.
	DisplayName string
	// spec.clusterManager.name.
	ClusterManager string
	// status.version.kubernetes.
	KubernetesVersion string
	// status.properties, by their names.
	Properties map[string]string
	// The provider that issues its credential. Empty: none.
	Provider string
	// How to reach it. nil: it has no provider, or the profile is not usable.
	Cluster *Cluster
	// Whether there is a credential for it.
	Readiness Readiness
	// Why it is not ready. nil: no failure is known.
	Failure *Error

	// Digest of the message, to see whether anything has changed.
	digest [sha256.Size]byte
}

// A HubState is the state of the API server that the broker reads the ClusterProfiles from.
type HubState struct {
	// All ClusterProfiles have been read at least once. Until then some may be missing.
	Synced bool
	// Why the hub cannot be read now. What is known stays in use.
	Failure *Error
	// Since when Synced is as it is, and Failure is present or absent. Zero: the hub has not answered yet.
	Since time.Time
}

// String returns the name and the readiness.
func (s *ClusterState) String() string {
	if s == nil {
		return "no cluster"
	}
	return fmt.Sprintf("%s (%s)", s.ClusterName, s.Readiness)
}

func clusterStateFrom(message *pb.ClusterState) *ClusterState {
	profile := message.GetClusterProfile()
	state := &ClusterState{
		ClusterName:       ClusterName{profile.GetNamespace(), profile.GetName()},
		DisplayName:       message.GetDisplayName(),
		ClusterManager:    message.GetClusterManager(),
		KubernetesVersion: message.GetKubernetesVersion(),
		Properties:        map[string]string{},
		Provider:          message.GetProvider(),
		Cluster:           clusterFrom(message.GetCluster()),
		Readiness:         Readiness(strings.TrimPrefix(message.GetReadiness().String(), "READINESS_")),
		Failure:           failureFrom(message.GetFailure()),
	}
	if encoded, err := (proto.MarshalOptions{Deterministic: true}).Marshal(message); err == nil {
		state.digest = sha256.Sum256(encoded)
	}
	for _, property := range message.GetProperties() {
		state.Properties[property.GetName()] = property.GetValue()
	}
	return state
}

func hubFrom(message *pb.HubState) HubState {
	state := HubState{Synced: message.GetSynced(), Failure: failureFrom(message.GetFailure())}
	if since := message.GetSinceTime(); since != nil {
		state.Since = since.AsTime()
	}
	return state
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
