//! What `--help` prints.

/// What `--help` prints.
pub(crate) const HELP: &str = "\
An exec credential plugin for Kubernetes clients. It requests a credential from credbroker and prints it as an
ExecCredential. `credbroker kubeconfig inject` puts it in front of the plugins of a kubeconfig:

  command: credbroker-exec
  args: [--provider, prod, --api-version, v1, --, aws, eks, get-token]

Usage: credbroker-exec --provider NAME [options] [-- COMMAND ARGS...]
       credbroker-exec --cluster-profile NAMESPACE/NAME [options]
       credbroker-exec --proxy PATH [--socket PATH]
       credbroker-exec bridge [options]             the same as `credbroker bridge`, for which it needs that program

  --provider NAME                   a configured provider, or a user of a kubeconfig [env: CREDBROKER_PROVIDER]
  -- COMMAND ARGS...                the plugin of that user; the shim sends only its digest
  --env NAME                        a variable of the stanza; its value is part of the digest
  --dir DIR                         the directory of a relative COMMAND
  --cluster-info                    COMMAND receives the cluster
  --was KEY=VALUE                   for `credbroker kubeconfig restore`
  --fallback auto|never             whether COMMAND runs if no broker answers, and `credbroker kubeconfig inject`
                                    recorded it [default: auto]
  --definition DIGEST               the digest, if there is no COMMAND
  --cluster-profile NAMESPACE/NAME  a ClusterProfile that the broker reads
  --server URL                      the cluster's server according to the kubeconfig, for clients that do not set
                                    KUBERNETES_EXEC_INFO; if the cluster has moved, the request fails
  --socket PATH                     the broker's socket, a path or unix:///absolute/path [env: CREDBROKER_SOCKET]
                                    [default: $XDG_RUNTIME_DIR/credbroker/credbroker.sock if it exists and the
                                    user is not root, else /run/credbroker/credbroker.sock]
  --broker-uid UID                  trust only a broker with this uid on that socket [env: CREDBROKER_BROKER_UID]
                                    [default: this user, root, or the owner of the socket's directory]
  --timeout DURATION                longest time to wait, such as 500ms, 10s or 1h30m [default: 45s; at a terminal, as
                                    long as the plugin may run]
  --api-version v1|v1beta1          version to print for clients that do not set KUBERNETES_EXEC_INFO [default: v1]
  --proxy PATH                      print a handle of the proxy for a target, such as /clusters/NAMESPACE/NAME, instead of a
                                    credential; --socket is its socket for handles
                                    [default: $XDG_RUNTIME_DIR/credbroker-proxy/handles.sock if it exists and the user is not
                                    root, else /run/credbroker-proxy/handles.sock]
  --help, --version

The shim sends the broker the variables that select an identity for common plugins (AWS_*, AZURE_*, GOOGLE_*, ...),
variables with a word such as PROFILE or ACCOUNT in their name (SCW_PROFILE), and variables that CREDBROKER_CALLER_ENV
matches (comma-separated patterns; * matches any text). The broker uses the variables that the provider's callerEnv names.
Their values must be UTF-8.

Exit codes: 0 success; 1 the broker has no credential; 2 wrong usage; 69 no broker; 75 timeout; 77 access denied, or the
socket cannot be trusted; 78 a variable is not valid. On failure, one line on stderr gives cause and remedy.
";
