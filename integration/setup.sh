#!/bin/sh
# setup.sh makes a machine ready for `make demo`, `make test`, `make model` and `make
# kernel-test`; for what needs no more than Go (purpose go) it compares the version only.
#
#	setup.sh go|demo|test|model|kernels [COMMAND...]
#	setup.sh list
#
# `setup.sh list` prints the table of the tests: a check, a Debian package, and what it is
# for, a line each. integration/suite lets the tests call nothing else.
#
# setup.sh compares the Go version with go.mod's, installs the packages that are
# missing (as root, on a system with apt-get), and then runs COMMAND with them.
# Without root it names the packages and what to type, and fails. It asks apt for
# nothing where nothing is missing.
set -eu

purpose=${1:?"write: setup.sh go|demo|test|model|kernels [COMMAND...]"}
shift
repo=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
GO=${GO:-go}
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rootsfs-test
nodeVersion=22.23.3 nodeAtLeast=20

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# packages prints what a purpose needs: a check, the Debian package that has it, and
# what it is for. A check is a program's name, or a function of this script.
packages() {
	if [ "$purpose" = kernels ]; then
		cat <<-'TABLE'
			qemu-system-x86_64 qemu-system-x86 virtual machines
			mmdebstrap mmdebstrap the userland of the machines
			mke2fs e2fsprogs their disks
			staticbusybox busybox-static the first program of a machine
			modprobe kmod the order of a kernel's modules
			xz xz-utils modules that Debian has compressed
			zstd zstd modules that Ubuntu has compressed
			git git the files of the repository
		TABLE
		return 0
	fi
	if [ "$(id -u)" != 0 ] && [ "$purpose" != model ] && [ "$purpose" != list ]; then
		echo 'fusermount3 fuse3 mounts for an ordinary user'
	fi
	[ "$purpose" != demo ] || return 0
	cat <<-'TABLE'
		cc gcc the race detector and Spin's searches, which are C; programs that the tests compile
		headers libc6-dev the same
		spin spin the search for a fault in the order of a revocation
	TABLE
	case $purpose in test | list) ;; *) return 0 ;; esac
	cat <<-'TABLE'
		git git repositories that the tests make, fetch and rebase in a mount
		fusermount3 fuse3 mounts of an ordinary user's
		setpriv util-linux tests that become another user
		nsenter util-linux networks of a fleet's machines, in make soak
		ip iproute2 the same
		bwrap bubblewrap the level of rootsfs run that starts it
		getfacl acl access control lists in a mount
		setfattr attr extended attributes in a mount
		rsync rsync a program that copies trees, in a mount
		sqlite3 sqlite3 a program that locks and maps files, in a mount
		perl perl-base a program that starts processes faster than they are killed
		python3 python3 MCP servers of the tests
		venv python3-venv virtual environments inside rootsfs run
		node nodejs MCP servers and clients, npm, the console's page
		npm npm packages of the MCP peers, npm install in a mount
		chromium chromium the console's page
		dbus-daemon dbus-daemon notifications about questions
		tmux tmux a program that talks to itself over a socket
		ssh-agent openssh-client the same
		hg mercurial hooks that Mercurial executes
		rg ripgrep a program that looks at its standard input
		redis-cli redis-tools a program that is given one host
		grpc python3-grpcio the same
		curl curl a program of the network
		wget wget the same
		nginx nginx-light a server of the network
		openssl openssl the certificate authority of a run
		gh gh a program that uses a key it does not have
		httpx python3-httpx the same
		psql postgresql-client the same
		pip3 python3-pip the same
		strace strace a tracer of what it starts
		gdb gdb the same
		ps procps processes that a test must not leave
		bash bash completion, and commands that are pasted
		completion bash-completion the same
		zsh zsh the same
		fish fish the same
		rpm rpm packages of rootsfs
		man man-db manual pages of rootsfs
		groff groff-base the same
	TABLE
}

# found runs a check of packages.
found() {
	case $1 in
	headers | venv | completion | grpc | httpx | nginx | staticbusybox) "$1" ;;
	*) have "$1" ;;
	esac
}
headers() { echo '#include <stdlib.h>' | cc -E - >/dev/null 2>&1; }
completion() { [ -e "${BASH_COMPLETION:-/usr/share/bash-completion/bash_completion}" ]; }
staticbusybox() { have busybox && ! ldd "$(command -v busybox)" >/dev/null 2>&1; }
# A user's PATH need not have /usr/sbin. (have would find the function itself.)
nginx() { [ -x /usr/sbin/nginx ]; }
grpc() { [ -e /usr/lib/python3/dist-packages/grpc ]; }
httpx() { [ -e /usr/lib/python3/dist-packages/httpx ]; }
venv() { python3 -c 'import venv, ensurepip' 2>/dev/null; }

# checkGo fails unless the go command runs the version that go.mod asks for. A go
# command that is older and may fetch the right one (GOTOOLCHAIN) does so here.
checkGo() {
	want=$(sed -n 's/^go //p' "$repo/go.mod")
	have "$GO" || fail "Go $want or newer is missing: install it from https://go.dev/dl/ and put its bin directory into PATH"
	if ! found=$(cd "$repo" && "$GO" env GOVERSION 2>&1); then
		fail "Go $want or newer is needed; $GO says: $found"
	fi
	oldest=$(printf '%s\n%s\n' "$want" "${found#go}" | sort -V | head -n 1)
	[ "$oldest" = "$want" ] || fail "Go $want or newer is needed, and $GO is $found: install it from https://go.dev/dl/"
}

# checkFUSE warns early: the tests that mount would each fail or be skipped.
checkFUSE() {
	[ -e /dev/fuse ] || { say "there is no /dev/fuse: load the module (modprobe fuse), or give the container the device (--device /dev/fuse)"; return 0; }
	[ -r /dev/fuse ] && [ -w /dev/fuse ] || say "/dev/fuse cannot be opened by $(id -un): chmod 0666 /dev/fuse"
}

# install installs the packages of which the check fails.
install() {
	missing=$(packages | while read -r check package what; do
		found "$check" || { [ "$package" = nodejs ] && nodeIsRecent; } || printf '%s %s %s\n' "$package" "$check" "$what"
	done)
	[ -n "$missing" ] || return 0
	printf '%s\n' "$missing" | while read -r package check what; do say "missing: $check ($package), for $what"; done
	names=$(printf '%s\n' "$missing" | cut -d ' ' -f 1 | sort -u | tr '\n' ' ')
	have apt-get || fail "install what is missing with this system's package manager; Debian's names are: $names"
	[ "$(id -u)" = 0 ] || fail "an ordinary user cannot install packages. Type: sudo apt-get update && sudo apt-get install --no-install-recommends $names"
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	say "apt-get install --no-install-recommends $names"
	# shellcheck disable=SC2086 # the names are words
	if ! { apt-get update -q && withoutServers apt-get install -y -q --no-install-recommends $names; } </dev/null >"$log" 2>&1; then
		tail -n 20 "$log" >&2
		rm -f "$log"
		fail "apt-get failed. Install by hand, then try again: $names"
	fi
	rm -f "$log"
	left=$(packages | while read -r check package what; do found "$check" || printf '%s ' "$package"; done)
	[ -z "$left" ] || fail "installed, and not found afterwards: $left"
}

# withoutServers runs a command that installs packages. The servers in these, such as nginx
# at port 80, are started neither now nor with the machine: tests start their own.
withoutServers() {
	policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d} # Debian asks this program before it starts a server
	if [ -e "$policy" ]; then "$@"; return; fi
	hadNginx=; ! nginx || hadNginx=yes
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' INT TERM HUP
	printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
	status=0
	"$@" || status=$?
	rm -f "$policy"
	trap - EXIT INT TERM HUP
	[ -n "$hadNginx" ] || ! have systemctl || systemctl --quiet disable nginx || :
	return $status
}

# nodeIsRecent tells whether the node that is found is new enough for the packages
# of the tests.
nodeIsRecent() {
	have node && [ "$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)" -ge $nodeAtLeast ]
}

# recentNode puts a Node.js of the npm registry before the system's where that is too
# old (Debian 12 has 18), with its own npm: Debian's npm works with Debian's node only.
recentNode() {
	! nodeIsRecent || return 0
	case $(uname -m) in
	x86_64) arch=x64 ;;
	aarch64) arch=arm64 ;;
	*) fail "Node.js $nodeAtLeast or newer is needed, and $(node --version) is found: install it from https://nodejs.org/" ;;
	esac
	dir=$cache/node-$nodeVersion
	if [ ! -e "$dir/ready" ]; then
		say "Node.js $nodeVersion from the npm registry into $dir ($(node --version) is too old for the tests)"
		rm -rf "$dir"
		mkdir -p "$dir"
		npm install --prefix "$dir" --ignore-scripts --no-audit --no-fund --no-save --loglevel=error \
			"node-linux-$arch@$nodeVersion" npm@10.9.2 >&2 ||
			fail "the npm registry cannot be reached: install Node.js $nodeAtLeast or newer by hand"
		mkdir "$dir/bin"
		ln -s "../node_modules/node-linux-$arch/bin/node" "$dir/bin/node"
		ln -s ../node_modules/npm/bin/npm-cli.js "$dir/bin/npm"
		ln -s ../node_modules/npm/bin/npx-cli.js "$dir/bin/npx"
		touch "$dir/ready"
	fi
	PATH=$dir/bin:$PATH
	export PATH
	nodeIsRecent || fail "$dir/bin/node does not run: remove $dir, then try again"
}

case $purpose in
go | demo | test | model | kernels) ;;
list) packages; exit ;;
*) fail "unknown purpose $purpose: write go, demo, test, model, kernels or list" ;;
esac
checkGo
[ "$purpose" != go ] || exec "$@"
install
[ "$purpose" != test ] || recentNode
case $purpose in model | kernels) ;; *) checkFUSE ;; esac
[ $# -eq 0 ] || exec "$@"
