#!/bin/bash
# Checks the manifests: they parse, the chart and the plain file are the same as the Kustomize component, the pods fit the
# Pod Security Standard `restricted`, and the broker accepts each configuration in them. A real API server takes them, if
# it is built. Then a broker and a shim run as a pod would run them, also with the identities of three clouds (as root; skipped
# otherwise).
#
# usage: deploy/check.sh [BROKER [SHIM]]     default: the programs that `cargo build --workspace` makes
#        deploy/check.sh --write             writes kubernetes/example.yaml
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Components need Kustomize 3.7; kubectl has it since 1.21, and Debian 12 has an older kubectl.
kustomize() { kubectl kustomize "$1"; }
if ! kustomize "$here/kubernetes/example" >/dev/null 2>&1; then
    [[ -x $root/target/tools/kustomize ]] ||
        GOBIN=$root/target/tools go install -buildvcs=false sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
    kustomize() { "$root/target/tools/kustomize" build "$1"; }
fi
header="# Written by deploy/check.sh --write from kubernetes/example."
if [[ ${1-} == --write ]]; then
    { echo "$header"; kustomize "$here/kubernetes/example"; } >"$work/example.yaml"
    mv "$work/example.yaml" "$here/kubernetes/example.yaml"
    exit
fi
# The first block of YAML below the heading of a page.
block() { sed -n "/^## $2\$/,/^## /p" "$root/docs/$1" | sed -n '/^```yaml$/,/^```$/p' | sed '1d;/^```$/,$d'; }
broker=$(realpath "${1:-$root/target/debug/credbroker}")
shim=$(realpath "${2:-$root/target/debug/credbroker-exec}")
for program in "$broker" "$shim"; do
    [[ -x $program ]] || { echo "no program at $program; build it with: cargo build --workspace" >&2; exit 1; }
done
[[ -x $root/target/tools/helm ]] ||
    GOBIN=$root/target/tools go install -buildvcs=false helm.sh/helm/v3/cmd/helm@v3.18.6
helm() { "$root/target/tools/helm" "$@"; }

echo "-- the plain file is what Kustomize renders"
{ echo "$header"; kustomize "$here/kubernetes/example"; } >"$work/example.yaml"
diff -u "$here/kubernetes/example.yaml" "$work/example.yaml" || {
    echo "kubernetes/example.yaml is not up to date: deploy/check.sh --write" >&2
    exit 1
}

echo "-- objects, Pod Security and configurations"
for example in argocd kueue; do
    kustomize "$here/examples/testdata/$example" >"$work/$example.yaml"
done
chart=$here/helm/credbroker
helm lint --quiet --kube-version 1.35.0 "$chart"
render() { helm template test "$chart" --namespace controllers --kube-version 1.35.0 "$@"; }
render >"$work/helm.yaml"
render --set shim=image >"$work/helm-image.yaml"
# A number of a values file is not the same to helm as one of `--set`.
render --values - <<<'uid: 1000680001' | grep -q 'value: "1000680001"' || { echo "the chart changes a large uid" >&2; exit 1; }
render --set shim=none --set fleet=null --set workload.enabled=false >"$work/helm-none.yaml"
# A chart of one's own, with this one as its dependency.
mkdir "$work/own"
cp -r "$here/helm/testdata/own" "$work/own/chart"
mkdir "$work/own/chart/charts"
cp -r "$chart" "$work/own/chart/charts"
helm template test "$work/own/chart" --namespace controllers --kube-version 1.35.0 >"$work/helm-own.yaml"
# The example with the component of the shim's image in the place of the copy.
cp -r "$here/kubernetes" "$work"
sed -i 's/shim-copy/shim/' "$work/kubernetes/example/kustomization.yaml"
kustomize "$work/kubernetes/example" >"$work/example-image.yaml"
echo "- {name: credbroker-exec, newName: registry.example.com/shim}" >>"$work/kubernetes/example/kustomization.yaml"
kustomize "$work/kubernetes/example" | grep -q 'reference: registry.example.com/shim:0.1.0' || {
    echo "images of Kustomize does not name the shim's image" >&2
    exit 1
}
# The kustomization in the documentation, with the files of the example.
block kubernetes.md "Add it to your workload" >"$work/kubernetes/example/kustomization.yaml"
kustomize "$work/kubernetes/example" | sed 's#registry.example.com/credbroker:#credbroker:#' >"$work/documented.yaml"
# The example with the blocks of a page, whose lists are added to those of its kustomization.
with_blocks() { # PAGE HEADING...
    cp "$here/kubernetes/example/kustomization.yaml" "$work/kubernetes/example"
    for heading in "${@:2}"; do block "$1" "$heading"; echo ---; done |
        python3 -c 'import sys, yaml
path = sys.argv[1]
whole = yaml.safe_load(open(path))
for more in filter(None, yaml.safe_load_all(sys.stdin)):
    for key, items in more.items():
        whole.setdefault(key, []).extend(items)
yaml.safe_dump(whole, open(path, "w"))' "$work/kubernetes/example/kustomization.yaml"
    kustomize "$work/kubernetes/example"
}
with_blocks kubernetes.md Network "What else the broker's container takes" >"$work/example-more.yaml"
# With metrics, and the section that is a comment in the configuration.
sed -i 's/^#\(metrics:\|  \)/\1/' "$work/kubernetes/example/config.yaml"
with_blocks kubernetes.md Metrics >"$work/metrics.yaml"
cp "$here/kubernetes/example/config.yaml" "$work/kubernetes/example"
render --set metrics.enabled=true >"$work/helm-metrics.yaml"
python3 "$here/chart.py" "$root/target/tools/helm" "$chart" "$work"
python3 "$here/check.py" "$broker" "$work" "$here/examples/headlamp" "$here/examples/kueue/manager-config.yaml" "$root/docs/kubernetes.md"

echo "-- a real API server"
"$here/apply.sh" "$work" "$root/target/tools/helm"

echo "-- the identities of three clouds"
mkdir -p "$work/identities/pods"
with_blocks identities.md "With Kustomize" >"$work/identities/example.yaml"
python3 -B "$here/identities/check.py" "$broker" "$shim" "$root/target/tools/helm" "$work/identities/example.yaml" "$work/identities/pods"

echo "-- kubectl finds the broker's command line as its plugin"
mkdir "$work/bin"
ln -s "$broker" "$work/bin/kubectl-credbroker"
[[ $(PATH=$work/bin:$PATH kubectl credbroker --version) == "$("$broker" --version)" ]]

echo "-- a broker and its clients as in a pod"
"$here/pod.sh" "$broker" "$shim" "$work"
