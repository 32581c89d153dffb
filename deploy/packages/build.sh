#!/bin/bash
# Builds credbroker_VERSION_ARCH.deb (broker, units, man pages, completions) and credbroker-exec_VERSION_ARCH.deb (shim), with
# dpkg-deb alone. The same programs give the same packages.
#
# usage: deploy/packages/build.sh DIRECTORY [VERSION]     DIRECTORY has credbroker and credbroker-exec, as .ci/static builds them
#   OUT          where the packages go (target/packages)
#   DOCUMENTS    a directory with man1 and completions, for programs that do not run on this machine
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$here/../..")
broker=$(realpath "$1/credbroker")
shim=$(realpath "$1/credbroker-exec")
version=${2:-$("$shim" --version | cut -d ' ' -f 2)}
case $(readelf --file-header "$broker" | sed -n 's/ *Machine: *//p') in
    *X86-64) arch=amd64 ;;
    AArch64) arch=arm64 ;;
    *) echo "unknown architecture: $broker" >&2; exit 1 ;;
esac
out=${OUT:-$root/target/packages}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}

documents=${DOCUMENTS-}
if [[ -z $documents ]]; then
    documents=$work/documents
    mkdir -p "$documents"/{man1,completions}
    "$broker" man "$documents/man1"
    for shell in bash zsh fish; do "$broker" completions "$shell" >"$documents/completions/credbroker.$shell"; done
fi

control() { # PACKAGE DEPENDS RECOMMENDS DESCRIPTION
    mkdir -p "$work/$1/DEBIAN" "$work/$1/usr/share/doc/$1"
    {
        echo "Package: $1"
        echo "Version: $version"
        echo "Architecture: $arch"
        echo "Maintainer: The credbroker authors <maintainers@credbroker.io>"
        echo "Section: net"
        echo "Priority: optional"
        [[ -z $2 ]] || echo "Depends: $2"
        [[ -z $3 ]] || echo "Recommends: $3"
        echo "Homepage: https://github.com/credbroker/credbroker"
        echo "Description: $4"
    } >"$work/$1/DEBIAN/control"
    install -m 0644 "$root/LICENSE" "$work/$1/usr/share/doc/$1/copyright"
}
package() { # PACKAGE
    find "$work/$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --build "$work/$1" "$out/$1_${version}_$arch.deb" >/dev/null
    ls -sh "$out/$1_${version}_$arch.deb"
}

# A static program needs no library.
libraries=
if readelf --program-headers "$broker" | grep -q INTERP; then
    libc=$(readelf --wide --version-info "$broker" | grep -o 'GLIBC_[0-9.]*' | sort --version-sort | tail -n 1)
    libraries="libc6 (>= ${libc#GLIBC_}), libgcc-s1"
fi
control credbroker "$libraries" "credbroker-exec, ca-certificates" "credential broker for Kubernetes clients"
tree=$work/credbroker
usr=$tree/usr
install -D -m 0755 "$broker" "$usr/bin/credbroker"
# kubectl runs it for `kubectl credbroker`.
ln -s credbroker "$usr/bin/kubectl-credbroker"
for unit in credbroker.socket credbroker.service; do
    install -D -m 0644 "$root/systemd/$unit" "$usr/lib/systemd/system/$unit"
    install -D -m 0644 "$root/systemd/user/$unit" "$usr/lib/systemd/user/$unit"
done
for directory in sysusers.d tmpfiles.d; do
    install -D -m 0644 "$root/systemd/$directory/credbroker.conf" "$usr/lib/$directory/credbroker.conf"
done
for file in "$root"/systemd/drop-ins/*.conf; do
    install -D -m 0644 "$file" "$usr/share/credbroker/drop-ins/${file##*/}"
done
for page in "$documents"/man1/*; do
    install -D -m 0644 "$page" "$usr/share/man/man1/${page##*/}"
done
gzip --no-name -9 "$usr"/share/man/man1/*
install -D -m 0644 "$documents/completions/credbroker.bash" "$usr/share/bash-completion/completions/credbroker"
install -D -m 0644 "$documents/completions/credbroker.zsh" "$usr/share/zsh/vendor-completions/_credbroker"
install -D -m 0644 "$documents/completions/credbroker.fish" "$usr/share/fish/vendor_completions.d/credbroker.fish"
for script in postinst prerm postrm; do
    install -m 0755 "$here/$script" "$tree/DEBIAN/$script"
done
package credbroker

control credbroker-exec "" "" "exec credential plugin that asks credbroker"
install -D -m 0755 "$shim" "$work/credbroker-exec/usr/bin/credbroker-exec"
package credbroker-exec
