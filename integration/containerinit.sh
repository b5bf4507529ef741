#!/bin/bash
# containerinit.sh is what runs inside of container.sh's container: the first process
# there. It mounts what a container has, makes the new root its own, and does the runs.
set -euo pipefail

# enter NEWROOT SOURCE RUN...: from outside. A root that is only changed (chroot)
# would allow no user namespace.
if [ "$1" = enter ]; then
	new=$2 source=$3
	shift 3
	mount --bind "$new" "$new"
	mount --bind -o ro "$source" "$new/src.git"
	mount -t proc proc "$new/proc"
	mount -t sysfs sysfs "$new/sys"
	mount -t cgroup2 cgroup2 "$new/sys/fs/cgroup"
	mount -t tmpfs -o mode=755 dev "$new/dev"
	mkdir "$new/dev/pts" "$new/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=0666 devpts "$new/dev/pts"
	mount -t tmpfs -o mode=1777 shm "$new/dev/shm"
	find "$new/tmp" -mindepth 1 -delete
	ln -s pts/ptmx "$new/dev/ptmx"
	ln -s /proc/self/fd "$new/dev/fd"
	for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${n%:*}" "$new/dev/${n#*:}"; done
	for d in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229; do
		IFS=: read -r name major minor <<<"$d"
		mknod -m 0666 "$new/dev/$name" c "$major" "$minor"
	done
	cd "$new"
	pivot_root . old
	umount -l /old
	exec /bin/bash /init.sh runs "$@"
fi
shift

# files lists what lies outside of temporary files, caches and packages, one a line.
# Debian's systemd and dbus, which other packages need, make directories in /run and
# /root/.ssh when they are installed, and nginx makes /var/www; Go makes ~/.config.
files() {
	find / -xdev \( -path /run/adduser -o -path /run/dbus -o -path /run/lock -o -path /run/log -o -path /run/sendsigs.omit.d -o -path /run/shm \
		-o -path /run/systemd -o -path /run/user -o -path /root/.ssh \) -prune -o \( -path /root/.config -o -path /home/tester/.config \) -o \( -path /tmp -o -path /proc -o -path /sys -o -path /dev -o -path /root/.cache -o -path /root/.npm -o -path /root/go -o -path /root/.config/go \
		-o -path /home/tester/.cache -o -path /home/tester/.npm -o -path /home/tester/go -o -path /home/tester/.config/go -o -path /home/tester/rootsfs -o -path /root/rootsfs \
		-o -path /usr -o -path /etc -o -path /var/lib -o -path /var/cache -o -path /var/log -o -path /var/www \) -prune -o -printf '%p %y\n' | sort
	find /tmp /dev/shm -mindepth 1 -printf '%p %y\n' | sort
}
# mounts lists the mounts, and processes the programs that run beside this one's own.
mounts() { cut -d ' ' -f 1-3 /proc/mounts | sort; }
processes() {
	for dir in /proc/[0-9]*; do
		line=$(tr '\0' ' ' <"$dir/cmdline" 2>/dev/null) || continue
		case "$line" in '' | *"/init.sh runs"* | *"while :; do :; done"*) ;; *) echo "${dir#/proc/} $line" ;; esac
	done
}

# as RUN COMMAND...: runs a command as the run says (container.sh).
as() {
	local run=$1
	shift
	case $run in
	user) HOME=/home/tester USER=tester setpriv --reuid tester --regid tester --init-groups "$@" ;;
	link) HOME=/people/tester USER=tester setpriv --reuid tester --regid tester --init-groups "$@" ;;
	locale)
		install -d -m 0700 -o tester "/tmp/.state/a b"
		(
			umask 077
			chown tester /tmp/.state
			HOME=/home/tester USER=tester LANG=de_DE.UTF-8 TMPDIR="/tmp/.state/a b" setpriv --reuid tester --regid tester --init-groups "$@"
		)
		;;
	nohup) HOME=/root USER=root setsid --wait nohup "$@" <&- ;;
	*) HOME=/root USER=root "$@" ;;
	esac
}

# prepare RUN: makes the machine what the run needs.
prepare() {
	case $1 in
	locale)
		[ -e /usr/sbin/locale-gen ] || apt-get install -y -q --no-install-recommends locales >/dev/null 2>&1 </dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends locales; } >/dev/null 2>&1 </dev/null
		locale-gen >/dev/null
		;;
	link) protected=$(cat /proc/sys/fs/protected_symlinks) && echo 1 >/proc/sys/fs/protected_symlinks ;;
	busy)
		bash -c 'while :; do :; done' &
		loops=($!)
		;;
	esac
}
protected=

bad=0
for run in "$@"; do
	home=/root loops=()
	case $run in user | locale) home=/home/tester ;; link) home=/people/tester ;; esac
	prepare "$run"
	mkdir -p /tmp/.state && chmod 700 /tmp/.state
	files >/tmp/.state/files.before
	mounts >/tmp/.state/mounts.before
	echo "container: run $run begins"
	began=$SECONDS code=0
	cd "$home"
	rm -rf rootsfs
	as "$run" bash -c 'git clone -q /src.git rootsfs && cd rootsfs && make demo && make test' || code=$?
	[ ${#loops[@]} -eq 0 ] || { kill "${loops[@]}"; wait "${loops[@]}" 2>/dev/null || true; }
	[ -z "$protected" ] || echo "$protected" >/proc/sys/fs/protected_symlinks
	protected=
	rm -rf rootsfs
	files >/tmp/.state/files.after
	mounts >/tmp/.state/mounts.after
	left=$(diff /tmp/.state/files.before /tmp/.state/files.after | grep -v '/tmp/.state' | grep '^[<>]' || true)
	left+=$(diff /tmp/.state/mounts.before /tmp/.state/mounts.after | grep '^[<>]' || true)
	left+=$(processes)
	if [ -n "$left" ]; then
		echo "container: run $run left: $left"
		code=1
	fi
	echo "container: run $run ended with $code after $((SECONDS - began)) s"
	[ "$code" = 0 ] || bad=1
done
exit $bad
