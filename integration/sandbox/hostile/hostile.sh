#!/bin/sh
# The hostile program's little brother: what anybody can try with a shell.
# Its arguments are those of the Go program's targets that it needs. It prints a
# line for each attempt: "worked" or "refused", a tab, and what it was.
secret=$1 says=$2 root=$3 victim=$4 tcp=$5
dir=$(dirname "$secret")

try() {
	what=$1
	shift
	if "$@" >/dev/null 2>&1; then printf 'worked\t%s\n' "$what"; else printf 'refused\t%s\n' "$what"; fi
}
reveals() { grep -qF "$says" "$@"; }
enter() { (cd "$1"); }
write() { (: >>"$1"); }
tcp_connect() { bash -c ": <>/dev/tcp/${tcp%:*}/${tcp#*:}"; }
is_victim() { tr '\0' ' ' <"/proc/$victim/cmdline" | grep -q rootsfs-victim; }
kill_victim() { is_victim && kill -USR1 "$victim"; }
victim_environ() { is_victim && tr '\0' '\n' <"/proc/$victim/environ" | reveals; }
glob() { set -- "$dir"/*; test -e "$1"; }
# What it leaves is looked for when the run has ended; $1 tells it from others.
background() { (setsid sleep 300 "$1" &) && false; }

try "cat a file" reveals "$secret"
try "ls a directory" ls "$dir"
try "expand a pattern" glob
try "stat a file" stat "$secret"
try "chmod a file" chmod 666 "$secret"
try "touch a file" touch -m "$secret"
try "cd into a directory" enter "$dir"
try "append to a file" write "$secret"
try "make a file" touch "$dir/made-by-sh"
try "copy a file in" cp "$secret" "$root/copied"
try "move a file out of its place" mv "$dir/movable-sh" "$root/"
try "remove a file" rm "$dir/removable-sh"
try "hard-link a file" ln "$secret" "$root/linked-sh"
try "follow a link out of the root" reveals "$root/link"
try "climb out with .." reveals "../../../../../../../../../..$secret"
try "read by /proc/1/root" reveals "/proc/1/root$secret"
try "read by the victim's root" reveals "/proc/$victim/root$secret"
try "read the victim's environment" victim_environ
try "signal the victim" kill_victim
try "connect by TCP" tcp_connect
try "mount" mount -t tmpfs hostile "$root"
try "unshare" unshare --user --map-root-user true
try "enter another namespace" nsenter --target "$victim" --uts true
try "chroot" chroot / true
try "read /etc/shadow" cat /etc/shadow
try "write core_pattern" write /proc/sys/kernel/core_pattern
try "write sysrq-trigger" write /proc/sysrq-trigger
try "write to /usr" touch /usr/.hostile
try "make a device" mknod "$root/device" c 1 3
try "leave something running" background "$6"
