#!/bin/bash
# container.sh shows that `make demo` and `make test` work on a machine that nobody has
# prepared: in a bare Debian root (debootstrap) with Go, gcc, make and git.
#
#	container.sh [root|user|busy|nohup|locale|link]...
#
# Each argument is a run, in this order; without arguments "root root user user busy". The
# first run as root installs what setup.sh names. A run clones the repository (its last
# commit), runs both commands, and fails if one of them does, or if a mount, a process or a
# file outside of the clone and of caches is left. The runs are:
#
#	root    as root
#	user    as an ordinary user
#	busy    as root, beside a busy loop
#	nohup   as root, SIGHUP ignored, without a terminal, stdin closed
#	locale  as a user, with a language that writes numbers and sorts otherwise, umask 077,
#	        and a TMPDIR with a space
#	link    as a user whose home is reached by a link, with fs.protected_symlinks=1
#
# container.sh needs root, debootstrap and a mirror of Debian among the machine's own
# sources of packages. ROOTSFS_CONTAINER names a directory for the root that is kept between
# calls; KEEP=1 keeps the other.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
go=$(cd "$repo" && go env GOROOT)
runs=("$@")
[ ${#runs[@]} -gt 0 ] || runs=(root root user user busy)
for run in "${runs[@]}"; do
	case $run in root | user | busy | nohup | locale | link) ;; *) echo "container.sh: unknown run $run: write root, user, busy, nohup, locale or link" >&2; exit 2 ;; esac
done
[ "$(id -u)" = 0 ] || { echo "container.sh: root is needed, for debootstrap and mounts" >&2; exit 5; }
command -v debootstrap >/dev/null || { echo "container.sh: debootstrap is missing: apt-get install debootstrap" >&2; exit 5; }

work=$(mktemp -d /var/tmp/rootsfs-container.XXXXXX)
new=${ROOTSFS_CONTAINER:-$work/root}
cleanup() { [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$work"; }
trap cleanup EXIT

if [ ! -e "$new/ready" ]; then
	release=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") ||
		{ echo "container.sh: this is not Debian: its sources name no mirror to build a Debian root from" >&2; exit 5; }
	mirror=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(REPO_URI)' | awk -v release="$release" '$1 == release { print $2; exit }')
	[ -n "$mirror" ] || { echo "container.sh: the sources of this machine (/etc/apt) name no mirror of Debian $release: add one" >&2; exit 5; }
	echo "container: debootstrap $release from $mirror into $new"
	debootstrap --variant=minbase --include=ca-certificates,gcc,libc6-dev,make,git "$release" "$new" "$mirror" >"$work/debootstrap.log" 2>&1 ||
		{ tail -n 20 "$work/debootstrap.log" >&2; exit 1; }
	# As this machine reaches packages, modules and names.
	rm -f "$new/etc/apt/sources.list"
	cp -a /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d "$new/etc/apt/"
	cp -L /etc/resolv.conf /etc/hosts "$new/etc/"
	cp -a /usr/local/share/ca-certificates/. "$new/usr/local/share/ca-certificates/" 2>/dev/null || true
	chroot "$new" update-ca-certificates >/dev/null 2>&1 || true
	chroot "$new" useradd -m -s /bin/bash tester
	for home in root home/tester; do
		[ ! -e ~/.npmrc ] || cp ~/.npmrc "$new/$home/.npmrc"
	done
	chroot "$new" chown -R tester: /home/tester
	ln -s home "$new/people"
	echo 'de_DE.UTF-8 UTF-8' >"$new/etc/locale.gen"
	# Copied, as on a real machine: with a mount below /usr no overlay of it can be made.
	cp -a "$go" "$new/usr/local/go"
	git config --file "$new/etc/gitconfig" safe.directory '*'
	touch "$new/ready"
fi
mkdir -p "$new/src.git" "$new/old"
rm -rf "$work/src.git"
git clone -q --bare "$repo" "$work/src.git"
cp "$repo/integration/containerinit.sh" "$new/init.sh"

status=0
unshare --mount --pid --ipc --fork --kill-child --propagation private \
	env -i PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	LANG=C.UTF-8 TERM=dumb GOFLAGS="${GOFLAGS:-}" GOPROXY="$(go env GOPROXY)" GOSUMDB="$(go env GOSUMDB)" CI="${CI:-}" \
	http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" no_proxy="${no_proxy:-}" \
	NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-}" \
	bash "$repo/integration/containerinit.sh" enter "$new" "$work/src.git" "${runs[@]}" || status=$?
exit $status
