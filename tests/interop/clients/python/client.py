"""One request for each line of standard input.

usage: client.py KUBECONFIG CONTEXT NAMESPACE"""

import json
import sys

from kubernetes import client, config

file, context, namespace = sys.argv[1:]
config.load_kube_config(file, context)
core = client.CoreV1Api()
for _ in sys.stdin:
    try:
        core.read_namespace(namespace, _request_timeout=20)
        line = {"status": 200}
    except client.ApiException as error:
        line = {"status": error.status, "error": str(error.reason)}
    except Exception as error:  # What urllib3 raises is for the driver to count.
        line = {"status": 0, "error": str(error)[:300]}
    print(json.dumps(line), flush=True)
