#!/usr/bin/env bash
# Makes recordings for tests/snapshots.rs anew: `record.sh NAME ...`, or all of them. The table in README.md has their commands.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# Names of the threads of loads.
names=(hog- yields serves asks heavy light output)
cargo build --examples
replay=$(cargo test --bench replay --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))/\1/p')
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
sed -n 's/^| \([a-z-]*\) | `\(.*\)` | `\(.*\)` |$/\1\t\2\t\3/p' tests/data/recordings/README.md |
    while IFS=$'\t' read -r name command load; do
        [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
        eval "command=($command)"
        read -ra load <<<"$load"
        "$replay" --record "$directory/$name" "${command[@]}" -- "${load[@]}" </dev/null
        "$replay" --pack "$directory/$name" "tests/data/recordings/$name.xz" "${load[@]}" "${names[@]}" </dev/null
    done
