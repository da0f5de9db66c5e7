#!/usr/bin/env bash
# Lets an amd64 Debian 12 build for AArch64 and run what was built in an emulator: `.ci/setup-aarch64.sh PREFIX`.
#
# Everything is from Debian: cross linker, C library and emulator are installed; of the compiler, whose standard library for
# arm64 would not install beside that for amd64, the packages are unpacked into PREFIX. Writes PREFIX/env.sh, to be sourced
# in a subshell, since it names another compiler. What is done already is not done again.
set -euo pipefail

prefix=${1:?usage: .ci/setup-aarch64.sh PREFIX}
oldest=1.95 # what Cargo.toml asks for
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
root=$prefix/root

say() { echo "setup-aarch64: $*"; }

# A mirror that is being updated may miss what it lists.
retry() {
    local try
    for try in 1 2 3 4 5; do
        "$@" && return
        say "failed for the time number $try: $*"
        sleep $((5 * try))
    done
    return 1
}

if ! { command -v aarch64-linux-gnu-gcc && command -v qemu-aarch64-static && [ -d /usr/aarch64-linux-gnu/lib ]; } >/dev/null; then
    say 'installing cross linker, C library and emulator'
    retry apt-get update -qq
    DEBIAN_FRONTEND=noninteractive retry apt-get install -y -qq --no-install-recommends \
        binutils gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static >"$prefix/install.log"
fi

# apt as if arm64 were an architecture of this machine, with lists of its own, so that the machine's stay as they are.
apt=(-o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o Acquire::Languages=none -o APT::Sandbox::User=root
    -o "Dir::State::Lists=$prefix/lists" -o "Dir::Cache=$prefix/cache")

# VERSION... of PACKAGE, the newest first.
versions() { apt-cache "${apt[@]}" madison "$1" | cut -d'|' -f2 | tr -d ' '; }

# The packages among the dependencies of PACKAGE=VERSION that match a pattern.
needs() {
    apt-cache "${apt[@]}" show --no-all-versions "$1" | sed -n 's/^Depends: //p' |
        tr ',|' '\n\n' | sed 's/([^)]*)//; s/:any//; s/ //g' | grep -xE "$2" || true
}

# The newest version that both architectures have.
newest() {
    apt-get "${apt[@]}" update -qq
    local version arm
    arm=$(versions libstd-rust-web-dev:arm64)
    for version in $(versions rustc-web); do
        if grep -qxF "$version" <<<"$arm" && dpkg --compare-versions "$version" ge "$oldest"; then
            echo "$version"
            return
        fi
    done
    return 1
}

unpack() {
    local version library llvm packages package
    version=$(newest) || return 1
    library=$(needs "libstd-rust-web-dev=$version" 'libstd-rust-web-[0-9.]+')
    llvm=$(needs "$library=$version" 'libllvm[0-9]+')
    # What the two need besides may be missing here, but for the C library, which never is.
    packages=$(for package in "$library=$version" $llvm; do needs "$package" 'lib[a-z0-9.+-]+'; done |
        sort -u | grep -vE '^(libc6|libgcc.*|libstdc\+\+6|libstd-rust.*)$' || true)
    say "unpacking rustc $version"
    rm -rf "$root" "$prefix/debs"
    mkdir -p "$root" "$prefix/debs"
    (cd "$prefix/debs" && apt-get "${apt[@]}" download -qq "rustc-web=$version" "libstd-rust-web-dev=$version" \
        "libstd-rust-web-dev:arm64=$version" "$library=$version" $llvm $packages) || return 1
    for package in "$prefix"/debs/*.deb; do dpkg -x "$package" "$root" || return 1; done
    rm -rf "$prefix/debs"
    touch "$root/.unpacked"
}

if [ ! -e "$root/.unpacked" ]; then
    mkdir -p "$prefix/lists/partial" "$prefix/cache/archives/partial"
    retry unpack
    rm -rf "$prefix/lists" "$prefix/cache"
fi

libraries=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
for folder in "$root"/usr/lib/llvm-*/lib; do libraries+=:$folder; done
for tool in rustc rustdoc; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/usr/bin/%s --sysroot %s/usr "$@"\n' \
        "$libraries" "$root" "$tool" "$root" >"$prefix/$tool"
    chmod +x "$prefix/$tool"
done
cat >"$prefix/env.sh" <<END
export RUSTC=$prefix/rustc RUSTDOC=$prefix/rustdoc
export CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64-static -L /usr/aarch64-linux-gnu'
END
say "ready: . $prefix/env.sh"
