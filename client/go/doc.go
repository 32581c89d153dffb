// Package credbroker gives Go programs the credentials of a credbroker: a broker on this machine that runs Kubernetes exec
// credential plugins once for all programs, and refreshes the credentials before they expire.
//
// [RESTConfig] returns a config for client-go and controller-runtime:
//
//	config, err := credbroker.RESTConfig(ctx, credbroker.ClusterProfile("fleet", "paris"))
//	client, err := dynamic.NewForConfig(config)
//
// The config holds strings only: no token, no function and no pointer to a transport. Two calls for the same credential
// return configs that are equal, for reflect.DeepEqual and for equality.Semantic.DeepEqual, however often the credential
// rotates in between. Clients that are made of it follow the broker: they send a new token with the next request, use a
// new certificate for new connections, and report a 401 response.
//
// A [Broker] has the other calls: single requests, credentials that follow their rotations ([Source]), and the clusters of
// the fleet ([Clusters]). A program needs one Broker; [Default] returns the one of the environment.
//
// Before anything is sent, the socket is checked: its directory must be one that other users cannot write to, and the
// process behind it must run as a trusted user. The variables CREDBROKER_SOCKET and CREDBROKER_BROKER_UID name the socket
// and the uid of the broker.
//
// No String method, error or format verb of this package shows a token, a private key, a variable of the caller's
// environment or the password of a proxy.
package credbroker
