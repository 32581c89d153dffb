#!/bin/bash
# Prepares the clients of this directory, and the Go client of examples/, under target/channels, with what each ecosystem ships:
# packages, of the versions in examples/, and code generators. What the machine lacks is said in a line that begins with SKIPPED,
# and in a file that the tests read.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."
root=$PWD
out=$root/target/channels
proto=$root/proto
mkdir -p "$out"
failed=0

# One client: `prepare NAME COMMANDS... -- FUNCTION`. The commands are what it cannot be prepared without; the function
# returns 77 where something else is missing, after it has said what.
prepare() {
    local name=$1 missing=() status=0
    shift
    rm -f "$out/$name.skipped" "$out/$name.ready"
    while [[ $1 != -- ]]; do
        command -v "$1" >/dev/null || missing+=("$1")
        shift
    done
    if ((${#missing[@]})); then
        echo "SKIPPED $name: this machine has no ${missing[*]}" | tee "$out/$name.skipped"
        return
    fi
    "$2" >"$out/$name.log" 2>&1 || status=$?
    case $status in
    0) touch "$out/$name.ready" && echo "ready: $name" ;;
    77) echo "SKIPPED $name: $(tail -n 1 "$out/$name.log")" | tee "$out/$name.skipped" ;;
    *)
        tail -n 30 "$out/$name.log"
        echo "FAILED $name: see $out/$name.log" >&2
        failed=1
        ;;
    esac
}

# Where the commands of docs/clients.md are run as they are written there.
in_directory() {
    mkdir -p "$1" && ln -sfn "$proto" "$1/proto" && cd "$1"
}

# In a function whose status is looked at, `set -e` has no effect: each step returns by itself.
python() { # VERSION DIRECTORY
    local bin=$out/$2/venv/bin
    [[ -x $bin/python ]] || python3 -m venv "$out/$2/venv" || return
    "$bin/python" -m pip install --quiet --only-binary :all: \
        "grpcio==$1" "grpcio-tools==$1" "grpcio-status==$1" 'setuptools<81' || return
    (
        in_directory "$out/$2/generated" && PATH=$bin:$PATH || exit
        command python -m grpc_tools.protoc -I proto --python_out=. --grpc_python_out=. credbroker/v1/credbroker.proto
    )
}
python_newest() { python "$(sed -n 's/^grpcio==//p' "$root/examples/python/requirements.txt")" python; }
python_1_60() {
    # There are no wheels of it for later versions, and no test builds it from source.
    python3 -c 'import sys; sys.exit(sys.version_info >= (3, 13))' ||
        { echo "grpcio 1.60 has no wheel for $(python3 --version)"; return 77; }
    python 1.60.1 python-1.60
}

java_client() {
    mvn --batch-mode --quiet --file "$root/examples/java/pom.xml" compile || return
    javac -cp "$out/java/classes:$out/java/dependency/*" -d "$out/java/classes" "$here"/java/*.java
}

go_client() {
    local source=$out/go
    rm -rf "$source/gen" && mkdir -p "$source/gen" && cp -r "$root"/examples/go/{go.*,*.go} "$here/go/printed" "$source" || return
    (cd "$source" && go build -buildvcs=false -o bin/ tool) || return
    (
        in_directory "$source/gen" && PATH=$source/bin:$PATH || exit
        protoc -I proto --go_out=. --go-grpc_out=. credbroker/v1/credbroker.proto
    ) || return
    (cd "$source" && go build -buildvcs=false -o client . && go build -buildvcs=false -o print ./printed)
}

node_client() {
    mkdir -p "$out/node" && cp "$here/node/client.cjs" "$root/examples/node/package.json" "$out/node" || return
    (cd "$out/node" && npm install --silent --no-audit --no-fund)
}

ruby_client() {
    ruby -e 'require "grpc"' || { echo "Ruby has no grpc (Debian: ruby-grpc)"; return 77; }
    (
        in_directory "$out/ruby" || exit
        protoc -I proto --ruby_out=. --grpc_out=. --plugin=protoc-gen-grpc=/usr/bin/grpc_ruby_plugin credbroker/v1/credbroker.proto
    )
}

grpcurl_client() {
    GOBIN=$out/grpcurl go install -buildvcs=false github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3
}

# protoc of protobuf 22 or newer: older ones do not know `debug_redact`, and Debian 12 has 21. Maven has it for Java.
protoc_binary() (
    local version
    version=$(sed -n 's:.*<protobuf.version>\(.*\)</protobuf.version>.*:\1:p' "$root/examples/java/pom.xml")
    mkdir -p "$out/protoc" && cd "$out/protoc" || return
    mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -Dmdep.stripVersion=true \
        -Dartifact="com.google.protobuf:protoc:$version:exe:linux-$(uname -m | sed s/aarch64/aarch_64/)" \
        -DoutputDirectory="$out/protoc" || return
    mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack \
        -Dartifact="com.google.protobuf:protobuf-java:$version" -Dmdep.unpack.includes='**/*.proto' \
        -DoutputDirectory="$out/protoc" || return
    mv "$out"/protoc/protoc-linux-*.exe "$out/protoc/protoc" && chmod +x "$out/protoc/protoc"
)

PATH=$out/protoc:$PATH:/usr/local/go/bin
prepare protoc mvn -- protoc_binary
prepare python python3 -- python_newest
prepare python-1.60 python3 -- python_1_60
prepare java java mvn -- java_client
prepare go go protoc -- go_client
prepare grpcurl go -- grpcurl_client
prepare node node npm -- node_client
prepare ruby ruby protoc grpc_ruby_plugin -- ruby_client
exit "$failed"
