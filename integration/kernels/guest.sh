#!/bin/bash
# guest.sh runs in a virtual machine, as its first program (init.sh starts it). It runs the
# phases that the kernel's command line names (phases=doctor,mounts), each no longer than
# phaselimit seconds (a suite: suitelimit).
#
#	guest.sh                     everything, then the machine is switched off
#	guest.sh FUNCTION [ARG]...   one function, for another user or under a time limit
#
# Lines that begin with "===" are for the program that booted the machine:
#
#	=== step TEXT               what is done now
#	=== result NAME VERDICT     a result: "ok ...", "none ..." (cannot be had), "FAILED: ..."
#
# Logs go to /results, which is written to the third disk as a tar archive.
export PATH=/k/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=${HOME:-/root} LANG=C.UTF-8 LC_ALL=C.UTF-8
[ "$HOME" != / ] || HOME=/root

step() { echo "=== step [$(cut -d . -f 1 /proc/uptime) s] $*"; }
result() { echo "=== result $1 $(shift; echo "$*" | tr '\n' ';' | sed 's/;$//' | cut -c 1-300)"; }
# as runs a function of this script as root or as the user, no longer than three minutes.
as() {
	local who=$1; shift
	local call=(timeout -k 5 180 bash /k/guest.sh "$@")
	if [ "$who" = user ]; then
		HOME=/home/tester USER=tester setpriv --reuid tester --regid tester --init-groups "${call[@]}"
	else
		HOME=/root USER=root "${call[@]}"
	fi || result "limit.$1.$who" "FAILED: $* as $who: stopped after 180 s"
}
save() { # one at a time
	exec 9>/run/save
	flock 9
	dmesg >/results/dmesg
	tar cf /dev/vdc -C /results . 2>/dev/null # a log may grow meanwhile
	sync
	exec 9>&-
}
waitfor() { # waitfor SECONDS COMMAND...: until COMMAND succeeds
	local n=$(($1 * 10)); shift
	until "$@" || [ $n = 0 ]; do sleep 0.1; n=$((n - 1)); done 2>/dev/null
}

# doctor: what rootsfs doctor says.
doctor() {
	result version ok "$(rootsfs version | head -n 1)"
	result lsm ok "$(cat /sys/kernel/security/lsm 2>&1)"
	local who
	for who in root user; do
		step "doctor as $who"
		as $who doctor_once $who
	done
}
doctor_once() {
	rootsfs doctor --json | tee /tmp/doctor."$1" | awk -F '"' -v who="$1" '
		/"name":/ { name = $4 }
		/"status":/ { status = $4 }
		/"detail":/ && (name == "confinement" || name == "transport" || name == "kernel") { print "=== result doctor." who "." name, status, $4 }'
}

# demo: what make demo runs. It shows the tree that it lies in: a tree of this user's own.
demo() {
	local who
	for who in root user; do
		step "make demo as $who"
		as $who demo_once $who
	done
}
demo_once() {
	rm -rf ~/demo && mkdir -p ~/demo/integration
	cp -r /k/src/integration/demo ~/demo/integration/ && cp /k/src/go.mod /k/src/README.md ~/demo/
	if sh ~/demo/integration/demo/demo.sh /k/bin/rootsfs >~/demo.log 2>&1; then
		result "demo.$1" ok
	else
		result "demo.$1" "FAILED: exit code $?"
		tail -n 5 ~/demo.log
	fi
}

# mounts: mount, work with files, revoke what is held, unmount; as root and as a user.
mounts() {
	local spec specs="root:auto user:auto"
	# Root switches io_uring on, so that a user has it after that.
	[ ! -e $switch ] || specs="root:auto root:plain root:io_uring user:auto user:io_uring"
	for spec in $specs; do
		step "mount as ${spec%:*}, transport ${spec#*:}"
		as "${spec%:*}" mount_once "${spec%:*}" "${spec#*:}"
	done
	[ -e $switch ] || as root no_rings
}
mount_once() {
	local name=$1.$2 transport
	rm -rf ~/m && mkdir -p ~/m/src ~/m/mnt && cd ~/m || return
	echo hello >src/a
	head -c 100000 /dev/urandom >src/big
	if ! rootsfs mount --transport "$2" --root w=src:rw --daemon --name s mnt >out 2>&1; then
		result "mount.$name" "FAILED: $(head -n 1 out)"
		return
	fi
	transport=$(rootsfs status --json | sed -n 's/.*"transport": "\(.*\)".*/\1/p')
	work_with_files >out 2>&1
	revoke_what_is_held "$name"
	rootsfs unmount mnt || echo "unmount: exit code $?" >>out
	! grep " $HOME/m/mnt " /proc/mounts || echo "still mounted" >>out
	if [ -s out ]; then result "mount.$name" "FAILED: $(cat out)"; else result "mount.$name" "ok $transport"; fi
}
# work_with_files prints what does not work, and nothing else.
work_with_files() {
	check() { "$@" || echo "$*"; }
	check [ "$(cat mnt/w/a)" = hello ]
	echo x >mnt/w/new
	check [ "$(cat src/new)" = x ]
	check mv mnt/w/new mnt/w/new2
	check mkdir mnt/w/d
	check mv mnt/w/new2 mnt/w/d/
	check ln mnt/w/d/new2 mnt/w/hard
	check ln -s hard mnt/w/soft
	check [ "$(cat mnt/w/soft)" = x ]
	check truncate -s 3 mnt/w/hard
	check chmod 600 mnt/w/hard
	check touch -d 2020-01-01 mnt/w/hard
	check cmp src/big mnt/w/big
	check cp -p mnt/w/big mnt/w/big2
	check cmp src/big src/big2
	check rm -r mnt/w/d mnt/w/big2
	echo append >>mnt/w/a
	check [ "$(tail -n 1 src/a)" = append ]
}
# revoke_what_is_held revokes w while a process holds a file, a mapping and a directory of it.
revoke_what_is_held() {
	rm -f ready go
	python3 /k/hold.py mnt/w/big ready go >held 2>&1 &
	local holder=$!
	waitfor 30 test -e ready
	rootsfs revoke w >/dev/null || echo "revoke: exit code $?" >>held
	touch go
	wait $holder
	! cat mnt/w/a 2>/dev/null || echo "open after the revocation: WORKS" >>held
	if [ "$(grep -c ^hold held)" != 5 ] || grep -qE 'WORKS|exit code' held; then
		result "revoke.$1" "FAILED: $(cat held)"
	else
		result "revoke.$1" "ok $(sed 's/.*: //' held)"
	fi
}
# no_rings asks for io_uring where the kernel has none: the error must say why.
no_rings() {
	cd ~/m && timeout 20 rootsfs mount --transport io_uring --root w=src:rw --name s mnt >out 2>&1
	result norings "none exit code $?: $(head -n 1 out)"
}

# runs: each level of rootsfs run, and the network.
runs() {
	local who level port
	echo secret >/home/tester/secret && chmod 644 /home/tester/secret
	mkdir -p /tmp/www && echo served >/tmp/www/index.html
	for port in 8098 8099; do
		python3 -m http.server --directory /tmp/www --bind 127.0.0.1 $port >/dev/null 2>&1 &
	done
	outside=$!
	trap 'kill $(jobs -p)' EXIT
	for port in 8098 8099; do waitfor 60 bash -c "exec 3<>/dev/tcp/127.0.0.1/$port"; done
	for who in root user; do
		for level in strongest namespaces bubblewrap landlock; do
			step "run as $who, level $level"
			as $who run_once $who $level $outside
		done
		step "run as $who, network"
		as $who run_net $who hosts --net=127.0.0.1:8099
		as $who run_net $who whole --net
		as $who run_net $who no
	done
}
run_once() { # WHO LEVEL PID, of a process outside
	local rc level=()
	[ "$2" = strongest ] || level=(--level "$2")
	rm -rf ~/r && mkdir ~/r && cd ~/r || return
	timeout 100 rootsfs run "${level[@]}" --root .:rw -- sh -c '
		echo in >made
		cat /home/tester/secret 2>/dev/null && echo "REACHED a file outside"
		cat /etc/shadow 2>/dev/null && echo "REACHED /etc/shadow"
		kill -0 '"$3"' 2>/dev/null && echo "REACHED a process outside"
		exit 7' >../run.out 2>&1
	rc=$?
	grep '^rootsfs' ../run.out
	if grep -q REACHED ../run.out; then
		result "run.$1.$2" "FAILED: $(grep REACHED ../run.out)"
	elif [ $rc = 7 ] && [ "$(cat made)" = in ]; then
		result "run.$1.$2" ok
	else
		result "run.$1.$2" "none exit code $rc: $(grep -v '^rootsfs:   ' ../run.out | head -n 2)"
	fi
}
run_net() { # WHO hosts|whole|no [--net...]
	local want=
	mkdir -p ~/r && cd ~/r || return
	timeout 100 rootsfs run "${@:3}" --root .:rw -- python3 -c '
import urllib.request
for port in 8099, 8098:
    try: print(port, urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20).read().decode().strip())
    except Exception as e: print(port, "refused")
' >../net.out 2>&1
	case $2 in
	hosts) want='8099 served 8098 refused' ;;
	whole) want='8099 served 8098 served' ;;
	no) want='8099 refused 8098 refused' ;;
	esac
	local found
	found=$(grep -E '^80' ../net.out | tr '\n' ' ')
	if [ "$found" = "$want " ]; then
		result "net.$1.$2" ok
	elif [ -n "$found" ]; then
		result "net.$1.$2" "FAILED: $found"
	else
		result "net.$1.$2" "none $(grep -v '^rootsfs:   ' ../net.out | head -n 2)"
	fi
}

# smoke: the least of the phases above.
smoke() {
	local who
	doctor
	for who in root user; do
		step "mount as $who"
		as $who mount_once $who auto
	done
	for who in root user; do
		step "run as $who"
		as $who run_once $who strongest $$
	done
}

# uring: the daemon killed, and revocations, with processes at work, over io_uring.
uring() {
	[ -e $switch ] || { result uring "none no FUSE over io_uring"; return; }
	rm -rf ~/u && mkdir -p ~/u/src ~/u/mnt && cd ~/u || return
	head -c 300000 /dev/urandom >src/big
	local i
	: >bad
	for i in 1 2 3; do step "kill the daemon, $i of 3" && uring_kill >>bad; done
	[ -s bad ] && result uring.kills "FAILED: $(cat bad)" || result uring.kills "ok 3"
	: >bad
	for i in $(seq 10); do step "revoke under load, $i of 10" && uring_revoke >>bad; done
	[ -s bad ] && result uring.revocations "FAILED: $(cat bad)" || result uring.revocations "ok 10"
}
# uring_mount mounts, and starts four processes that work until they are refused.
uring_mount() {
	rootsfs mount --transport io_uring --root w=src:rw --daemon --name s mnt >/dev/null || echo "mount: exit code $?"
	rootsfs status --json | grep -q '"transport": "io_uring"' || echo "not served by io_uring"
	workers=()
	local j
	for j in 1 2 3 4; do work_until_refused $j & workers+=($!); done
}
work_until_refused() {
	local refused=0
	while [ $refused -lt 50 ]; do
		{ echo x >mnt/w/f$1 && cat mnt/w/f$1 mnt/w/big && ls mnt/w && mv mnt/w/f$1 mnt/w/g$1; } >/dev/null 2>&1 || refused=$((refused + 1))
	done
}
# uring_kill and uring_revoke print what is wrong, and nothing else.
uring_kill() {
	uring_mount
	sleep 3
	kill -9 "$(rootsfs status --json | sed -n 's/.*"pid": \([0-9]*\),/\1/p' | head -n 1)"
	wait "${workers[@]}"
	waitfor 10 not_mounted || { echo "still mounted"; rootsfs unmount mnt; }
	ps -eo stat,pid,args | grep '^D.*mnt/w'
}
not_mounted() { ! grep -q " $HOME/u/mnt " /proc/mounts; }
uring_revoke() {
	uring_mount
	rm -f ready go
	python3 /k/hold.py mnt/w/big ready go >held 2>&1 &
	local holder=$!
	waitfor 30 test -e ready
	rootsfs revoke w >/dev/null || echo "revoke: exit code $?"
	touch go
	wait $holder
	[ "$(grep -c ^hold held)" = 5 ] && ! grep WORKS held || cat held
	wait "${workers[@]}"
	rootsfs unmount mnt >/dev/null || echo "unmount: exit code $?"
}

# suites: test binaries, where their packages lie. Over io_uring where the kernel has it.
suites() {
	local dir log rc began transport=plain
	[ ! -e $switch ] || { transport=io_uring; echo Y >$switch; }
	export ROOTSFS_TRANSPORT=$transport
	for dir in ${suites//,/ }; do
		step "tests of $dir, $transport"
		log=/results/${dir//\//_}.log began=$(cut -d . -f 1 /proc/uptime)
		(cd "/k/src/$dir" && exec timeout -k 20 $((suitelimit + 60)) "/k/tests/${dir//\//_}.test" \
			-test.v -test.timeout "${suitelimit}s" ${skip:+-test.skip "$skip"}) >"$log" 2>&1
		rc=$?
		set -- "$(grep -c '^--- PASS' "$log") passed, $(grep -c '^--- FAIL' "$log") failed, $(grep -c '^--- SKIP' "$log") skipped, $(($(cut -d . -f 1 /proc/uptime) - began)) s, $transport"
		[ $rc = 0 ] && result "suite.$dir" "ok $1" || result "suite.$dir" "FAILED: exit code $rc, $1"
		grep -E '^ *--- FAIL|^panic:|running tests:|^FAIL:|^	Test' "$log" | head -n 40
		save
	done
}

# complaints: what the kernel found wrong with itself.
complaints() {
	dmesg | grep -E 'WARNING|BUG:|Oops|hung task|blocked for more|rcu.*stall|soft lockup|general protection' >/results/complaints
	if [ -s /results/complaints ]; then
		result complaints "FAILED: $(head -n 3 /results/complaints)"
	else
		result complaints ok
	fi
}

set_up() {
	mount -o remount,rw /
	mount -t tmpfs -o mode=755 run /run
	mkdir -p /dev/pts /dev/shm /results
	mount -t devpts -o ptmxmode=0666 devpts /dev/pts
	mount -t tmpfs -o mode=1777 shm /dev/shm
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	mount -t securityfs securityfs /sys/kernel/security 2>/dev/null
	ln -sfn /proc/self/fd /dev/fd
	ln -sfn fd/0 /dev/stdin; ln -sfn fd/1 /dev/stdout; ln -sfn fd/2 /dev/stderr
	ln -sfn ../proc/self/mounts /etc/mtab # fusermount3 -u needs it
	chmod 666 /dev/fuse /dev/net/tun
	ip link set lo up
	echo guest >/proc/sys/kernel/hostname
	# Ubuntu restricts user namespaces so; restrictuserns comes from the kernel's command line.
	[ -z "${restrictuserns:-}" ] || echo "$restrictuserns" >/proc/sys/kernel/apparmor_restrict_unprivileged_userns
}

switch=/sys/module/fuse/parameters/enable_uring
if [ $# -gt 0 ]; then
	"$@"
	exit 0
fi
set_up
result kernel ok "$(uname -r)"
(while sleep 30; do save; done) & # for a machine that is stopped
for phase in ${phases//,/ } complaints; do
	step "phase $phase"
	limit=$phaselimit
	[ $phase != suites ] || limit=0 # each has its own
	timeout -k 10 $limit bash /k/guest.sh "$phase" 2>&1 </dev/null | tee "/results/$phase.log"
	rc=${PIPESTATUS[0]}
	[ "$rc" != 124 ] && [ "$rc" != 137 ] || result "phase.$phase" "FAILED: stopped after $limit s"
	save
done
result end ok
sync
echo o >/proc/sysrq-trigger
sleep 60
