#!/bin/sh
# What `make demo` shows: this repository read-only and a scratch directory
# writable, a read, a refused write, a refused escape, and the revocation of an
# open file, each with its audit line. Fails if any of it did not happen.
set -eu

rootsfs=$(CDPATH='' cd -- "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
repo=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/rootsfs-demo.XXXXXX")
mnt=$work/mnt session=demo-$$

# The demo's audit and session files are its own and go with it.
export XDG_STATE_HOME="$work/state" XDG_RUNTIME_DIR="$work/run"
mkdir -p "$mnt" "$work/out" "$XDG_STATE_HOME" "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"

pid=
cleanup() {
	exec 3<&- || true
	if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '  $ %s\n' "$*" | sed "s|$work|DEMO|g; s|$repo|REPO|g"; }
indent() { sed "s/^/    /; s|$work|DEMO|g; s|$repo|REPO|g"; }
fail() { printf '\ndemo: FAILED: %s\n' "$*" >&2; exit 1; }

# refused WHAT EXPECTED-TEXT COMMAND...: the command must fail with that text.
refused() {
	what=$1 text=$2
	shift 2
	run "$@"
	if out=$(LC_ALL=C "$@" 2>&1); then fail "$what was not refused"; fi
	printf '%s\n' "$out" | indent
	case $out in *"$text"*) ;; *) fail "$what failed with something else than \"$text\"" ;; esac
}

# audited WHAT GREP-PATTERN: the last matching audit line.
audited() {
	n=0
	while :; do
		# Records of what was allowed reach the file within a tenth of a second.
		line=$("$rootsfs" audit show --session "$session" --json | grep -E "$2" | tail -n 1) && [ -n "$line" ] && break
		n=$((n + 1))
		[ $n -lt 50 ] || fail "no audit record of $1"
		sleep 0.1
	done
	printf '    audit: %s\n' "$line" | sed "s|$work|DEMO|g; s|$repo|REPO|g" | cut -c 1-230
}

say "1. Mount this repository read-only and a scratch directory writable"
run rootsfs mount --root "code=$repo:ro" --root "out=$work/out:rw" "$mnt"
"$rootsfs" mount --name "$session" --root "code=$repo:ro" --root "out=$work/out:rw" "$mnt" >"$work/log" 2>&1 &
pid=$!
n=0
until [ -s "$work/log" ] && [ -d "$mnt/code" ]; do
	n=$((n + 1))
	if [ $n -gt 200 ] || ! kill -0 "$pid" 2>/dev/null; then cat "$work/log" >&2; fail "the mount did not answer"; fi
	sleep 0.1
done
indent <"$work/log"

say "2. Programs read the approved root"
run head -n 1 "$mnt/code/go.mod"
got=$(head -n 1 "$mnt/code/go.mod") && printf '%s\n' "$got" | indent
[ "$got" = "$(head -n 1 "$repo/go.mod")" ] || fail "the file reads differently through the mount"
audited "the open" '"op":"open".*"path":"go.mod".*"verdict":"allowed"'

say "3. ... and write where they may"
run cp "$mnt/code/go.mod" "$mnt/out/copy"
cp "$mnt/code/go.mod" "$mnt/out/copy"
cmp "$repo/go.mod" "$work/out/copy" || fail "the copy differs"
audited "the write" '"op":"(create|close)".*"root":"out".*"path":"copy"'

say "4. A write to the read-only root is refused"
refused "the write" "Read-only file system" touch "$mnt/code/planted"
[ ! -e "$repo/planted" ] || fail "the write reached the repository"
audited "the refused write" '"verdict":"refused".*"kind":"ReadOnly"'

say "5. A link that leads out of the root leads nowhere"
ln -s /etc/passwd "$work/out/escape"
refused "the escape" "Permission denied" cat "$mnt/out/escape"
audited "the refused escape" '"op":"readlink".*"verdict":"refused"'

say "6. A program keeps a file open; revoking takes it away at once"
exec 3<"$mnt/code/README.md"
head -c 1 <&3 >/dev/null
run rootsfs revoke code
"$rootsfs" revoke --session "$session" code | indent
refused "the read of the open file" "ermission denied" head -c 100 "/proc/self/fd/3"
if LC_ALL=C dd bs=1 count=1 <&3 >/dev/null 2>"$work/err"; then fail "the open file still reads"; fi
indent <"$work/err"
audited "the revocation" '"op":"revoke"'
audited "the refused read" '"verdict":"refused".*"kind":"Revoked"'

say "7. The other root lives on; the audit log's chain holds"
cat "$mnt/out/copy" >/dev/null || fail "the other root died too"
run rootsfs audit verify
"$rootsfs" audit verify --session "$session" | indent

say "8. Unmount"
exec 3<&-
"$rootsfs" unmount "$mnt" | indent
wait "$pid" || fail "the daemon ended with an error"
pid=
if grep -q " $mnt " /proc/mounts; then fail "the mount is still there"; fi
say "Everything happened as it should."
