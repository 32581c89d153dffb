package credbroker

import (
	"crypto/sha256"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"google.golang.org/protobuf/proto"
)

// A Ref names one credential, with what the caller contributes to it. [Provider], [ClusterProfile] and [Context] make one. It is
// immutable, and printing it shows no value of the environment.
type Ref struct {
	// As String shows it, and as errors do.
	name, said string
	// Digest of the message. Equal keys are the same request.
	key string
	// A function, so that no format verb and no dumper of structs reads the environment in it.
	message func() *pb.CredentialRef
}

// Provider names the credential of a provider of the broker.
func Provider(name string) Ref {
	source := &pb.CredentialRef_Provider{Provider: &pb.ProviderRef{Name: name}}
	return newRef("provider/"+name, "provider "+name, &pb.CredentialRef{Source: source})
}

// ClusterProfile names the credential of a ClusterProfile object (multicluster.x-k8s.io).
func ClusterProfile(namespace, name string) Ref {
	profile := &pb.ClusterProfileRef{Namespace: namespace, Name: name}
	source := &pb.CredentialRef_ClusterProfile{ClusterProfile: profile}
	return newRef("clusterprofile/"+namespace+"/"+name, "cluster "+namespace+"/"+name, &pb.CredentialRef{Source: source})
}

// Context names the credential of a context of a kubeconfig that the broker reads. `credbroker clusters
// --contexts` prints the digest. If the context changes, requests with the old digest fail with [ReasonUnknownContext].
func Context(name, digest string) Ref {
	source := &pb.CredentialRef_Context{Context: &pb.ContextRef{Name: name, Digest: digest}}
	return newRef("context/"+name, "context "+name, &pb.CredentialRef{Source: source})
}

// WithDefinition returns a Ref to one definition of the provider. The digest is the one that `credbroker status -o json`
// lists. It is needed only if several providers have the name, and has no effect on ClusterProfiles.
func (r Ref) WithDefinition(digest string) Ref {
	return r.with(func(message *pb.CredentialRef) {
		if provider := message.GetProvider(); provider != nil {
			provider.Definition = &digest
		}
	})
}

// WithEnv returns a Ref with a variable of the caller's environment. The broker uses it only if the provider's callerEnv
// names it.
func (r Ref) WithEnv(name, value string) Ref {
	return r.with(func(message *pb.CredentialRef) {
		if message.Env == nil {
			message.Env = map[string]string{}
		}
		message.Env[name] = value
	})
}

// WithCluster returns a Ref with the cluster that the credential is for. The broker passes it to a plugin with
// provideClusterInfo.
func (r Ref) WithCluster(cluster Cluster) Ref {
	return r.with(func(message *pb.CredentialRef) { message.Cluster = cluster.toMessage() })
}

// String returns the kind and the name: provider/NAME, clusterprofile/NAMESPACE/NAME or context/NAME.
func (r Ref) String() string { return r.name }

// GoString returns the same as String.
func (r Ref) GoString() string { return "credbroker.Ref(" + r.name + ")" }

func (r Ref) toMessage() *pb.CredentialRef {
	if r.message == nil {
		return &pb.CredentialRef{}
	}
	return r.message()
}

func (r Ref) with(change func(*pb.CredentialRef)) Ref {
	message := proto.CloneOf(r.toMessage())
	change(message)
	return newRef(r.name, r.said, message)
}

func newRef(name, said string, message *pb.CredentialRef) Ref {
	// The message has no unknown fields and no invalid UTF-8 that the broker would accept: if it cannot be encoded, the
	// call fails, and the key does not matter.
	encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	digest := sha256.Sum256(encoded)
	return Ref{name: name, said: said, key: string(digest[:]), message: func() *pb.CredentialRef { return message }}
}
