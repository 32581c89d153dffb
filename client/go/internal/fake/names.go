package fake

import (
	"slices"
	"strings"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
)

func refName(ref *pb.CredentialRef) string {
	if profile := ref.GetClusterProfile(); profile != nil {
		return "clusterprofile/" + nameOf(profile)
	}
	return "provider/" + ref.GetProvider().GetName()
}

func nameOf(profile *pb.ClusterProfileRef) string {
	return profile.GetNamespace() + "/" + profile.GetName()
}

// The caller holds the lock.
func (b *Broker) sorted(namespace string, all bool) []*pb.ClusterState {
	var states []*pb.ClusterState
	for _, state := range b.clusters {
		if all || state.GetClusterProfile().GetNamespace() == namespace {
			states = append(states, state)
		}
	}
	slices.SortFunc(states, func(a, b *pb.ClusterState) int {
		return strings.Compare(nameOf(a.GetClusterProfile()), nameOf(b.GetClusterProfile()))
	})
	return states
}
