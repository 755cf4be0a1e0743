#!/usr/bin/env bash
# Makes a release in dist/: a static binary for each architecture, completions, manual pages, licences and SHA256SUMS.
# Needs rustup's cargo, a C linker, and readelf (binutils). Without arguments: both architectures.
set -euo pipefail
cd "$(dirname "$0")"
export LC_ALL=C
target_dir=${CARGO_TARGET_DIR:-target}
limit_bytes=$((14 << 20))
(($#)) || set -- x86_64 aarch64

fail() {
    echo "release.sh: $1" >&2
    exit 1
}

for arch; do # before anything takes minutes
    [[ $arch == x86_64 || $arch == aarch64 ]] || fail "$arch: neither x86_64 nor aarch64"
done
command -v readelf >/dev/null || fail "readelf is missing: install binutils"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
rm -rf dist
mkdir -p dist/completions dist/man

for arch; do
    target=$arch-unknown-linux-musl
    rustup --quiet target add "$target"
    # Stripped by the last step alone, so that other release builds share all before it.
    cargo rustc --locked --profile dist --bin perf-prof --target "$target" -- -C strip=symbols
    file=dist/perf-prof-$version-$arch
    cp "$target_dir/$target/dist/perf-prof" "$file"
    headers=$(readelf -lW "$file") # no pipe: grep -q would break it
    ! grep -q INTERP <<<"$headers" || fail "$file asks for a dynamic loader"
    size=$(stat -c %s "$file")
    ((size <= limit_bytes)) || fail "$file has $((size / 1024)) KiB, more than $((limit_bytes / 1024))"
    echo "$file: static, $((size / 1024)) KiB"
done

# The binary of this machine writes them; they are the same for all.
here=dist/perf-prof-$version-$(uname -m)
[[ -x $here ]] || fail "$(uname -m), this machine's architecture, is not among: $*"
[[ $("$here" --version) == "perf-prof $version" ]] || fail "$here is of another version"
"$here" completions bash >dist/completions/perf-prof.bash
"$here" completions zsh >dist/completions/_perf-prof
"$here" completions fish >dist/completions/perf-prof.fish
"$here" man >dist/man/perf-prof.1
for command in $(tr -d '\\' <dist/man/perf-prof.1 | sed -n 's/^perf-prof-\([a-z-]*\)(1)$/\1/p'); do
    "$here" man "$command" >"dist/man/perf-prof-$command.1"
done
(($(find dist/man -type f | wc -l) > 1)) || fail "the main page names no command"
cp LICENSE-APACHE LICENSE-MIT LICENSE-THIRD-PARTY CHANGELOG.md dist/

(
    cd dist
    find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs -d '\n' sha256sum >SHA256SUMS
    sha256sum --quiet --check SHA256SUMS
)
echo "dist/: $(wc -l <dist/SHA256SUMS) files"
