package credbroker

import (
	"context"

	"k8s.io/client-go/rest"
)

// A ConfigChange is a config, or the reason why there is none.
type ConfigChange struct {
	// The config. nil: there is none.
	Config *rest.Config
	// Why there is none: there is no valid credential, or the cluster cannot be used.
	Err error
}

// RESTConfigs returns a channel with the config of [Source.RESTConfig], and then another one each time that the endpoint of
// the cluster changes. Make new clients then: the new address may be another cluster. While there is no config, the channel
// has the reason, and then each other reason. The config that follows is equal to the one before if the endpoint is the same.
// The channel is closed when ctx ends. Its configs work until then; see [Broker.Source] to keep them.
func (b *Broker) RESTConfigs(ctx context.Context, ref Ref) <-chan ConfigChange {
	changes := make(chan ConfigChange)
	source := b.Source(ref)
	started := b.start(func() {
		defer source.Close()
		defer close(changes)
		var sent ConfigChange
		var of *Cluster
		for {
			changed, failure := source.followed.state()
			next, credential := ConfigChange{Err: failure}, source.Current()
			switch {
			case credential != nil && sent.Config != nil && of.sameEndpoint(credential.cluster):
				next = sent
			case credential != nil:
				next.Config, next.Err = source.configOf(credential)
			}
			var deliver chan<- ConfigChange
			if next.isNews(sent) {
				deliver = changes
			}
			select {
			case deliver <- next:
				sent = next
				if next.Config != nil {
					of = credential.cluster
				}
			case <-changed:
			case <-source.ctx.Done():
				return
			case <-ctx.Done():
				return
			}
		}
	})
	if !started {
		source.Close()
		close(changes)
	}
	return changes
}

func (c ConfigChange) isNews(before ConfigChange) bool {
	if c.Config != nil {
		return c.Config != before.Config
	}
	return c.Err != nil && (before.Err == nil || c.Err.Error() != before.Err.Error())
}
