#!/bin/sh
# deb.sh DEB SCRATCH VERSION installs a package in a copy of this machine's system, uses
# what it installed, removes it, and fails unless nothing is left. It runs in mount and
# process namespaces of its own. The copy is an overlay, so its upper directory names
# every file that an installation made.
set -eu

deb=$1 scratch=$2 version=$3
step() { echo "deb.sh: $*"; }
fail() { echo "deb.sh: FAILED: $*"; exit 1; }

if [ "${4:-}" != inside ]; then
	mount -t tmpfs -o size=1g,mode=0755 rootsfs-test "$scratch"
	mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
	mount -t overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" rootsfs-test "$scratch/root"
	mkdir -p "$scratch/root/mnt/deb"
	cp "$deb" "$scratch/root/mnt/deb/rootsfs.deb"
	cp "$0" "$scratch/root/mnt/deb/deb.sh"
	mkdir "$scratch/root/mnt/deb/upper" "$scratch/root/mnt/deb/old"
	mount --bind "$scratch/upper" "$scratch/root/mnt/deb/upper"
	mount -t tmpfs tmpfs "$scratch/root/tmp"
	mount -t proc proc "$scratch/root/proc"
	mount --rbind /dev "$scratch/root/dev"
	mount --rbind /sys "$scratch/root/sys"
	cd "$scratch/root"
	pivot_root . mnt/deb/old
	exec /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp/home LANG=C.UTF-8 TERM=dumb \
		MANPAGER=cat DEBIAN_FRONTEND=noninteractive XDG_RUNTIME_DIR=/tmp/run \
		sh /mnt/deb/deb.sh /mnt/deb/rootsfs.deb /tmp "$version" inside
fi

umount -l /mnt/deb/old
cd /tmp
mkdir -p -m 0700 /tmp/home /tmp/run

# An AppArmor that knows the rule userns, with a parser that only says how it was called.
mkdir -p /etc/apparmor.d/abi
touch /etc/apparmor.d/abi/4.0
printf '#!/bin/sh\nexit 0\n' >/usr/local/sbin/aa-enabled
printf '#!/bin/sh\necho "$*" >>/tmp/parser.log\n' >/usr/local/sbin/apparmor_parser
chmod 0755 /usr/local/sbin/aa-enabled /usr/local/sbin/apparmor_parser

# list prints the files of the overlay, and the directories named after rootsfs, without
# dpkg's and man-db's own files. The overlay has other directories as soon as something
# in them changes.
list() {
	(cd /mnt/deb/upper && find . \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache -o -path ./mnt \) -prune -o \
		\( ! -type d -o -name '*rootsfs*' \) -print) | sort
}
list >/tmp/before

step install
dpkg --path-include='/usr/*' -i "$deb" >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg -i"; }
[ "$(rootsfs version | cut -d ' ' -f 2)" = "$version" ] || fail "rootsfs version: $(rootsfs version), want $version"
[ "$(command -v rootsfs)" = /usr/bin/rootsfs ] || fail "rootsfs is $(command -v rootsfs)"

step AppArmor
grep -q 'userns,' /etc/apparmor.d/rootsfs || fail "there is no profile"
[ "$(cat /tmp/parser.log)" = "-r -T /etc/apparmor.d/rootsfs" ] || fail "apparmor_parser got: $(cat /tmp/parser.log)"

step mount
mkdir /tmp/code /tmp/agent
echo hello >/tmp/code/file
rootsfs mount --root code=/tmp/code:ro --daemon /tmp/agent >/dev/null
[ "$(cat /tmp/agent/code/file)" = hello ] || fail "the mount shows another file"
! echo changed 2>/dev/null >/tmp/agent/code/file || fail "a read-only root was written"
rootsfs unmount /tmp/agent >/dev/null

step run
got=$(rootsfs run --root code=/tmp/code:ro -- cat file </dev/null 2>/tmp/run.log) || { cat /tmp/run.log; fail "rootsfs run"; }
[ "$got" = hello ] || fail "rootsfs run printed $got"

step manual
for page in rootsfs rootsfs-mount rootsfs-run; do
	man -w 1 "$page" >/dev/null || fail "there is no page $page"
done
man -w 7 rootsfs-security >/dev/null || fail "there is no page rootsfs-security(7)"
man rootsfs | grep -q '^NAME' || fail "man rootsfs shows no page"

step completion
bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader rootsfs 2>/dev/null || _comp_load rootsfs
	COMP_WORDS=(rootsfs rev) COMP_CWORD=1 COMP_LINE="rootsfs rev" COMP_POINT=11 COMP_TYPE=9
	__start_rootsfs; echo "${COMPREPLY[@]}"' 2>/tmp/bash.log | grep -q '^revoke' || { cat /tmp/bash.log; fail "bash completes nothing"; }
zsh -fc 'autoload -Uz compinit; compinit -u -D; echo "$_comps[rootsfs]"' | grep -qx _rootsfs || fail "zsh does not find its completion"
fish -c 'complete -C "rootsfs rev"' | grep -q '^revoke' || fail "fish completes nothing"

step unit
if command -v systemd-analyze >/dev/null; then
	systemd-analyze --user --man=no verify '/usr/lib/systemd/user/rootsfs@.service' >/tmp/unit.log 2>&1 || { cat /tmp/unit.log; fail "systemd-analyze verify"; }
	! grep rootsfs /tmp/unit.log || fail "systemd-analyze warns"
fi

step upgrade
dpkg --path-include='/usr/*' -i "$deb" >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg -i, once more"; }
[ -e /etc/apparmor.d/rootsfs ] || fail "an upgrade took the profile away"

step remove
mkdir -p /var/cache/apparmor/1234.0
touch /var/cache/apparmor/1234.0/rootsfs
dpkg -r rootsfs >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg -r"; }
[ "$(tail -n 1 /tmp/parser.log)" = "-R /etc/apparmor.d/rootsfs" ] || fail "the profile was not unloaded: $(cat /tmp/parser.log)"
list >/tmp/after
diff /tmp/before /tmp/after || fail "removal left files"
dpkg -P rootsfs >/dev/null 2>&1
# Tests that run beside this one make rootsfs-hostile-* and rootsfs-later-* below /usr.
left=$(find /etc /usr /var -xdev -name '*rootsfs*' ! -name 'rootsfs-hostile-*' ! -name 'rootsfs-later*' -newer /mnt/deb/deb.sh 2>/dev/null) || :
[ -z "$left" ] || fail "a purge left $left"
step done
