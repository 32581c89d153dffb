#!/bin/bash
# Changes the ConfigMap `counter` twice a second: 1, 2, 3, and so on. Ends with the node.
#
# usage: events.sh DIRECTORY     on the node
set -euo pipefail
cd "$1/controlplane"
number=0
while sleep 0.5; do
    ((number += 1))
    curl --silent --show-error --fail --max-time 10 --noproxy '*' --cacert ca.pem --cert admin.pem --key admin.key \
        --output /dev/null --request PATCH --header 'Content-Type: application/merge-patch+json' \
        --data "{\"data\": {\"number\": \"$number\"}}" \
        "$(cat server)/api/v1/namespaces/events/configmaps/counter"
done
