package sandbox

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
)

// hostName is what the command's machine is called.
const hostName = "rootsfs"

// etcFiles are copied: what programs need to run, resolve names and look the
// same as outside. What tells one machine from another (machine-id, hostname)
// or holds secrets is not among them.
var etcFiles = []string{
	"nsswitch.conf", "host.conf", "gai.conf", "protocols", "services", "networks", "rpc", "ethertypes",
	"ld.so.cache", "ld.so.conf", "localtime", "timezone", "locale.alias", "locale.conf", "locale.gen",
	"mime.types", "mailcap", "magic", "magic.mime", "os-release", "debian_version", "lsb-release", "redhat-release", "alpine-release",
	"inputrc", "profile", "bash.bashrc", "bashrc", "shells", "gitconfig", "npmrc", "pip.conf", "wgetrc", "DIR_COLORS", "manpath.config", "xattr.conf",
	"ssl/openssl.cnf", "pki/tls/openssl.cnf", "pki/tls/cert.pem",
}

// etcNetFiles are copied when there is a network.
var etcNetFiles = []string{"resolv.conf", "hosts"}

// etcDirs are shown read-only; the last elements may be patterns.
var etcDirs = []string{
	"alternatives", "ssl/certs", "ca-certificates", "pki/ca-trust", "pki/tls/certs", "crypto-policies", "ld.so.conf.d", "fonts", "terminfo", "profile.d",
	"perl", "python3*", "java-*", "maven", "skel",
}

// etc fills /etc.
func (l *layout) etc(o *Options, places Places) {
	name := userName(o.UID)
	l.Files = append(l.Files,
		file{"/etc/passwd", fmt.Appendf(nil, "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n%s:x:%d:%d::%s:%s\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
			name, o.UID, o.GID, places.Home, shell())},
		file{"/etc/group", fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", name, o.GID)},
		file{"/etc/hostname", []byte(hostName + "\n")},
	)
	l.Links = append(l.Links, link{"/etc/mtab", "/proc/self/mounts"})
	for _, n := range etcFiles {
		l.copy("/etc/" + n)
	}
	if o.Net {
		for _, n := range etcNetFiles {
			l.copy("/etc/" + n)
		}
	} else {
		l.Files = append(l.Files, file{"/etc/hosts", []byte("127.0.0.1 localhost " + hostName + "\n::1 localhost ip6-localhost " + hostName + "\n")})
	}
	if o.Network != nil {
		l.Files = append(l.Files, file{"/etc/resolv.conf", o.Network.ResolvConf})
	}
	for _, dir := range etcDirsHere() {
		l.mkdir(dir)
		l.Binds = append(l.Binds, bind{From: dir, To: dir, Optional: true, System: true})
	}
}

// copy adds a copy of a file of the host's at the same path, if it is there.
func (l *layout) copy(path string) {
	info, err := os.Lstat(path)
	from := path
	if err == nil && info.Mode()&os.ModeSymlink != 0 {
		if from, err = filepath.EvalSymlinks(path); err == nil {
			info, err = os.Lstat(from)
		}
	}
	if err == nil && info.Mode().IsRegular() {
		l.mkdir(filepath.Dir(path))
		l.Copies = append(l.Copies, copied{from, path})
	}
}

// etcDirsHere are those of etcDirs that this host has.
func etcDirsHere() []string {
	list := sync.OnceValue(func() []os.DirEntry {
		entries, _ := os.ReadDir("/etc") // what cannot be read is not shown
		return entries
	})
	var dirs []string
	add := func(dir string) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			dirs = append(dirs, dir)
		}
	}
	for _, pattern := range etcDirs {
		if !strings.Contains(pattern, "*") {
			add("/etc/" + pattern)
			continue
		}
		for _, e := range list() {
			if ok, _ := path.Match(pattern, e.Name()); ok { // the list has no bad pattern
				add("/etc/" + e.Name())
			}
		}
	}
	return dirs
}

var plainName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
})

// userName is what the command's uid is called inside: the caller's own name if
// it runs as the caller. The user database is not asked: it may be on a network.
func userName(uid uint32) string {
	if name := os.Getenv("USER"); uint32(os.Getuid()) == uid && uid != 0 && plainName().MatchString(name) && name != "root" && name != "nobody" {
		return name
	}
	return "server"
}

// shell is the shell of passwd: the caller's, if it is a system's.
func shell() string {
	s := os.Getenv("SHELL")
	if names.Under(s, "/bin") || names.Under(s, "/usr/bin") {
		if _, err := os.Stat(s); err == nil && filepath.Clean(s) == s && !hasControl(s) {
			return s
		}
	}
	return "/bin/sh"
}

// hasControl reports whether a string would break a line of passwd.
func hasControl(s string) bool {
	for _, r := range s {
		if r < ' ' || r == ':' {
			return true
		}
	}
	return false
}
