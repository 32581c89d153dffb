#!/bin/bash
# Makes what the tests need in the API server of a node: the ConfigMap that events.sh changes, and a ClusterProfile.
#
# usage: FOLDER=DIRECTORY hub.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
for namespace in events fleet; do k create namespace "$namespace"; done
k create configmap counter --namespace events --from-literal number=0
profile <"$node/manifests/hub.yaml"
