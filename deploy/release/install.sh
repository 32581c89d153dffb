#!/bin/sh
# Installs credbroker VERSION for the user who runs this script.
#
# usage: install.sh [--to DIRECTORY] [--from URL-OR-DIRECTORY]
#
#   --to DIRECTORY    where the programs go; CREDBROKER_INSTALL_DIR, XDG_BIN_HOME or ~/.local/bin
#   --from SOURCE     where the archive is; CREDBROKER_DOWNLOAD_URL or the release on GitHub
#
# The archive is used only if its SHA-256 is the one that this script has. Nothing is installed outside of the home directory,
# unless --to names another one, and no file of your shell is changed. To uninstall, remove the files that it names.
set -eu

# Nothing runs before the whole script is here.
main() {
    version='VERSION'
    source=${CREDBROKER_DOWNLOAD_URL:-https://github.com/credbroker/credbroker/releases/download/v$version}
    programs=${CREDBROKER_INSTALL_DIR:-${XDG_BIN_HOME:-${HOME:-}/.local/bin}}
    while [ $# -gt 0 ]; do
        case $1 in
            --to) programs=${2:?--to needs a directory} && shift ;;
            --from) source=${2:?--from needs a URL or a directory} && shift ;;
            -h | --help) usage && exit ;;
            *) fail "unknown argument: $1; run with --help" ;;
        esac
        shift
    done
    # Also for programs that run in another directory later.
    case $programs in /*) ;; *) programs=$PWD/$programs ;; esac
    for tool in mktemp tar gzip sha256sum; do
        command -v "$tool" >/dev/null || fail "this script needs $tool; install it first"
    done

    [ "$(uname -s)" = Linux ] || fail "the broker runs on Linux, and this is $(uname -s)"
    case $(uname -m) in
        x86_64 | amd64) arch=amd64 sha256='SHA256-amd64' ;;
        aarch64 | arm64) arch=arm64 sha256='SHA256-arm64' ;;
        *) fail "there are no programs for $(uname -m): build them with cargo, as the README says" ;;
    esac
    case $sha256 in SHA256-*) fail "this release has no programs for $arch" ;; esac
    name=credbroker-$version-linux-$arch

    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    echo "Getting $name.tar.gz from $source"
    fetch "$source/$name.tar.gz" "$work/archive"
    echo "$sha256  $work/archive" | sha256sum -c - >/dev/null 2>&1 ||
        fail "the archive is not the one of the release: its SHA-256 is $(sha256sum "$work/archive" | cut -d ' ' -f 1), not $sha256"
    gzip -dc "$work/archive" | tar -xf - -C "$work"

    data=${XDG_DATA_HOME:-${HOME:-$work}/.local/share}
    put 755 "$work/$name/credbroker" "$programs"
    put 755 "$work/$name/credbroker-exec" "$programs"
    # kubectl runs it for `kubectl credbroker`.
    ln -sf credbroker "$programs/kubectl-credbroker"
    for page in "$work/$name"/man1/*; do put 644 "$page" "$data/man/man1"; done
    put 644 "$work/$name/completions/credbroker.fish" "$data/fish/vendor_completions.d"
    mv "$work/$name/completions/credbroker.bash" "$work/credbroker"
    put 644 "$work/credbroker" "$data/bash-completion/completions"

    echo "Installed $("$programs/credbroker" --version | cut -d ' ' -f 1,2): credbroker, credbroker-exec and kubectl-credbroker in $programs,"
    echo "man pages and completions in $data"
    run="credbroker"
    case :$PATH: in
        *:"$programs":*) ;;
        *)
            echo "$programs is not in PATH. For this shell, run: export PATH=\"$programs:\$PATH\""
            run=$programs/credbroker
            ;;
    esac
    echo "To see what it does, run: $run demo"
    echo "To use it with your kubectl, run: $run setup (after an upgrade: $run restart)"
}

usage() {
    cat <<'USAGE'
Installs credbroker VERSION for the user who runs this script.

usage: install.sh [--to DIRECTORY] [--from URL-OR-DIRECTORY]

  --to DIRECTORY    where the programs go; CREDBROKER_INSTALL_DIR, XDG_BIN_HOME or ~/.local/bin
  --from SOURCE     where the archive is; CREDBROKER_DOWNLOAD_URL or the release on GitHub
USAGE
}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

# fetch SOURCE FILE
fetch() {
    case $1 in
        https://*)
            if command -v curl >/dev/null; then
                curl --proto '=https' --tlsv1.2 --fail --silent --show-error --location --retry 3 --output "$2" "$1"
            elif command -v wget >/dev/null; then
                wget --https-only --quiet --output-document="$2" "$1"
            else
                fail "this script needs curl or wget; or download the archive and use --from DIRECTORY"
            fi || fail "cannot download $1"
            ;;
        *://*) fail "$1: only https is used" ;;
        *) cp "$1" "$2" || fail "cannot read $1" ;;
    esac
}

# put MODE FILE DIRECTORY: a program that runs keeps its own file
put() {
    mkdir -p "$3"
    cp "$2" "$3/.${2##*/}.new"
    chmod "$1" "$3/.${2##*/}.new"
    mv -f "$3/.${2##*/}.new" "$3/${2##*/}"
}

main "$@"
