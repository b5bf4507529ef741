package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// interfaces is a Python program that lists network interfaces, tries to change them, and tries to
// open sockets of other netlink protocols.
const interfaces = `import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
def ask(kind, flags, body):
    s.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
    first = True
    while True:
        data = s.recv(65536)
        while len(data) >= 16:
            size, kind = struct.unpack_from("=IH", data)
            if kind == 3: return
            if kind == 2:
                code = -struct.unpack_from("=i", data, 16)[0]
                return print("refused" if code == 1 else code)
            print("interface" if kind == 16 else kind)
            data = data[(size + 3) & ~3:]
RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_NEWROUTE, RTM_DELROUTE, DUMP, ACK = 16, 18, 20, 24, 25, 0x301, 5
print([n for _, n in socket.if_nameindex()])
ask(RTM_GETLINK, DUMP, struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0))
ask(RTM_NEWLINK, ACK, struct.pack("=BBHiII", 0, 0, 0, 1, 0, 1))
ask(RTM_NEWADDR, ACK | 0x400, struct.pack("=BBBBI", 2, 32, 0, 254, 1) + struct.pack("=HH4s", 8, 2, b"\x0a\1\1\1"))
for kind in RTM_NEWROUTE, RTM_DELROUTE:
    ask(kind, ACK | 0x400, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 4, 254, 2, 0) + struct.pack("=HHI", 8, 4, 1))
for protocol in 4, 12, 15:
    try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol); print("protocol", protocol)
    except OSError as e: print(e.strerror)
`

// A command lists the network interfaces of its own namespace, and cannot change them, nor
// open another protocol of netlink. In the host's network it cannot list the interfaces.
func TestInterfaces(t *testing.T) {
	const refused = "Address family not supported by protocol"
	want := strings.Join([]string{"['lo']", "interface", "refused", "refused", "refused", "refused", "Protocol not supported", "Protocol not supported", "Protocol not supported"}, "\n")
	atLevels(t, rooted, func(t *testing.T, level Level) {
		run := func(o Options) string {
			o.Level, o.Tree = level, tree(t)
			out, _ := output(t, o, "python3 -c '"+interfaces+"' 2>&1 | sed 's/^OSError: .Errno 97. //'")
			return out
		}
		if got := run(Options{}); got != want {
			t.Errorf("without a network:\n%s\nwant\n%s", got, want)
		}
		if got := run(Options{Net: true}); !strings.HasSuffix(got, refused) || strings.Contains(got, "interface\n") {
			t.Errorf("with the host's network:\n%s\nwant %s", got, refused)
		}
	})
}

// The host name that a command sees can be resolved. This holds in the host's network, too,
// where /etc/hosts has the host's entries as well.
func TestHostNameResolves(t *testing.T) {
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Skip(err)
	}
	atLevels(t, rooted, func(t *testing.T, level Level) {
		for _, net := range []bool{false, true} {
			out, exit := output(t, Options{Level: level, Tree: tree(t), Net: net}, `python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'; cat /etc/hosts`)
			first, rest, _ := strings.Cut(out, "\n")
			if first != "127.0.0.1" || exit != (Exit{}) {
				t.Errorf("net %t: the host name leads to %q, want 127.0.0.1: %+v", net, first, exit)
			}
			if net && !strings.HasPrefix(rest, strings.TrimSpace(string(hosts))) {
				t.Errorf("/etc/hosts inside is %q, want the host's entries first: %q", rest, hosts)
			}
		}
	})
}

// A command sees only a part of /sys: the processors, the memory nodes and huge pages, which
// programs read to size their pools. It sees no interface, no disk and no serial number.
func TestSys(t *testing.T) {
	const script = `cd /sys && find . -maxdepth 3 -not -path './devices/system/*/*' -not -path './kernel/mm/transparent_hugepage/*' | sort
		cat devices/system/cpu/online; lscpu | grep '^CPU(s):'
		find . \( -name address -o -name serial -o -iname '*uuid*' -o -name net -o -name block -o -name dmi -o -name class \) -print
		awk '$5 ~ "^/sys" && $6 !~ /^ro,/' /proc/self/mountinfo`
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Skip(err)
	}
	atLevels(t, rooted, func(t *testing.T, level Level) {
		out, _ := output(t, Options{Level: level, Tree: tree(t)}, script)
		want := []string{".", "./devices", "./devices/system", "./devices/system/cpu"}
		for _, dir := range []string{"devices/system/node", "kernel", "kernel/mm", "kernel/mm/transparent_hugepage"} {
			if unix.Access("/sys/"+dir, unix.R_OK) == nil {
				want = append(want, "./"+dir)
			}
		}
		want = append(want, strings.TrimSpace(string(online)))
		got, rest, hasCount := strings.Cut(out, "\nCPU(s):")
		if got != strings.Join(want, "\n") {
			t.Errorf("/sys has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
		if _, rest, _ := strings.Cut(rest, "\n"); rest != "" || !hasCount {
			t.Errorf("lscpu counted: %t; /sys has also, or can be written to at:\n%s", hasCount, rest)
		}
	})
}

// A command sees the control group that limits its memory, at the path where runtimes look for
// it, and no other. Without a limit it sees none.
func TestGroupIsShown(t *testing.T) {
	const limit = 256 << 20
	g, err := newMemGroup(fmt.Sprint("rootsfs-test-possible-", os.Getpid()), limit)
	if err != nil {
		t.Skipf("this machine gives no control group: %v", err)
	}
	g.remove()
	const script = `cd /sys/fs/cgroup 2>/dev/null || { echo none; exit; }
		cat memory.max memory/memory.limit_in_bytes 2>/dev/null
		find . -mindepth 1 -type d -not -name memory
		cat cgroup.procs memory/cgroup.procs 2>/dev/null | grep -c '^0$'
		sh -c 'echo 1 >memory.max' 2>/dev/null; sh -c 'echo 1 >memory/memory.limit_in_bytes' 2>/dev/null
		awk '$5 ~ "^/sys" && $6 !~ /^ro,/' /proc/self/mountinfo
		node -p 'process.constrainedMemory()'`
	atLevels(t, rooted, func(t *testing.T, level Level) {
		o := Options{Level: level, MemoryMax: limit, Group: fmt.Sprintf("rootsfs-test-%d-%s", os.Getpid(), level)}
		if out, _ := output(t, o, script); out != fmt.Sprintf("%d\n0\n%[1]d", limit) {
			t.Errorf("with a limit of %d: %q", limit, out)
		}
		if out, _ := output(t, Options{Level: level}, script); out != "none" {
			t.Errorf("without a limit: %q", out)
		}
	})
}

// At level Landlock the command can read the processors in /sys. It cannot read network interfaces,
// disks, firmware and other parts of the host's /sys.
func TestSysOfHost(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/cpu/online"); err != nil {
		t.Skip(err)
	}
	o := Options{Level: Landlock, Private: private(t)}
	out, _ := output(t, o, `lscpu | grep -c '^CPU(s):'; cat /sys/class/net/lo/address 2>/dev/null
		for f in class/net block firmware devices/system/memory kernel/mm; do ls /sys/$f >/dev/null 2>&1 && echo $f; done`)
	if out != "1" {
		t.Errorf("inside: %q, want lscpu to work and nothing else to be read", out)
	}
}
