package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
)

// HostName is the host name that the command sees.
const HostName = "rootsfs"

// etcFiles are the host's files that are copied: programs need them to run, to resolve
// names and to behave as outside. Files that identify the machine (machine-id, hostname) or
// hold secrets are not among them.
var etcFiles = []string{
	"nsswitch.conf", "host.conf", "gai.conf", "protocols", "services", "networks", "rpc", "ethertypes",
	"ld.so.cache", "ld.so.conf", "localtime", "timezone", "locale.alias", "locale.conf", "locale.gen",
	"mime.types", "mailcap", "magic", "magic.mime", "os-release", "debian_version", "lsb-release", "redhat-release", "alpine-release",
	"inputrc", "profile", "bash.bashrc", "bashrc", "shells", "gitconfig", "npmrc", "pip.conf", "wgetrc", "DIR_COLORS", "manpath.config", "xattr.conf",
	"ssl/openssl.cnf", "pki/tls/openssl.cnf", "pki/tls/cert.pem",
}

// etcNetFiles has the files that describe the network. Every command has a hosts file. It has a
// resolv.conf only if it has the host's network or a network of approved hosts.
var etcNetFiles = []string{"resolv.conf", "hosts"}

// ownHosts are the lines of /etc/hosts that every command has.
const ownHosts = "127.0.0.1 localhost " + HostName + "\n::1 localhost ip6-localhost " + HostName + "\n"

// hosts returns the command's /etc/hosts. In the host's network it begins with the host's lines, if
// everybody may read them.
func (o *Spec) hosts() []byte {
	info, err := os.Stat("/etc/hosts")
	if !o.Net || err != nil || !info.Mode().IsRegular() || info.Size() > CopyMax || info.Mode()&0o004 == 0 {
		return []byte(ownHosts)
	}
	lines, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return []byte(ownHosts)
	}
	return append(append(lines, '\n'), ownHosts...)
}

// etcDirs has the host's directories that are shown read-only. Their last elements may be
// patterns.
var etcDirs = []string{
	"alternatives", "ssl/certs", "ca-certificates", "pki/ca-trust", "pki/tls/certs", "crypto-policies", "ld.so.conf.d", "fonts", "terminfo", "profile.d",
	"perl", "python3*", "java-*", "maven", "skel",
}

// EtcFiles returns the files of /etc that a command may find: copies of the host's files, and files
// that are made for the command.
var EtcFiles = sync.OnceValue(func() (files []string) {
	for _, n := range slices.Concat(etcFiles, etcNetFiles, []string{"passwd", "group", "hostname"}) {
		files = append(files, "/etc/"+n)
	}
	s := findSettings()
	files = slices.DeleteFunc(files, func(path string) bool { return slices.Contains(s.hidden, path) })
	return append(files, s.files...)
})

// EtcDirs returns the directories of this host's /etc that a command sees completely.
func EtcDirs() (dirs []string) {
	for _, pattern := range etcDirs {
		found, _ := filepath.Glob("/etc/" + pattern) // the patterns are well-formed
		for _, dir := range found {
			if info, err := os.Stat(dir); err == nil && info.IsDir() && !slices.Contains(findSettings().dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

var shownDirs = sync.OnceValue(func() []string { return slices.Concat(SystemDirs, EtcDirs(), SysDirs) })

// Shows reports whether commands see an absolute path of the host at the same path: read-only, or
// as one of Devices. It also reports true for EtcFiles, where commands may find a copy or a file of
// their own.
func Shows(path string) bool {
	below := func(dir string) bool { return names.Under(path, dir) }
	return slices.Contains(EtcFiles(), path) || slices.Contains(Devices, path) ||
		slices.ContainsFunc(shownDirs(), below)
}

// addEtc adds the files, links and directories of /etc.
func (l *Layout) addEtc(o *Spec) {
	name := UserName(o.UID)
	l.Files = append(l.Files,
		File{"/etc/passwd", fmt.Appendf(nil, "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n%s:x:%d:%d::%s:%s\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
			name, o.UID, o.GID, o.HomeAt, Shell())},
		File{"/etc/group", fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", name, o.GID)},
		File{"/etc/hostname", []byte(HostName + "\n")},
	)
	l.Links = append(l.Links, Link{"/etc/mtab", "/proc/self/mounts"})
	settings := findSettings()
	for _, n := range etcFiles {
		if path := "/etc/" + n; !slices.Contains(settings.hidden, path) && !(o.Trust != nil && slices.Contains(bundles, path)) {
			l.addCopy(path)
		}
	}
	for _, path := range settings.files {
		l.addCopy(path)
	}
	for _, path := range settings.links {
		l.Dirs = append(l.Dirs, filepath.Dir(path))
		l.addLink(path)
	}
	l.Masks = settings.masked
	if o.Net {
		l.addCopy("/etc/resolv.conf")
	}
	l.Files = append(l.Files, File{"/etc/hosts", o.hosts()})
	if o.ResolvConf != nil {
		l.Files = append(l.Files, File{"/etc/resolv.conf", o.ResolvConf})
	}
	if o.Trust != nil {
		l.addTrust(o.Trust)
	}
	for _, dir := range EtcDirs() {
		if o.Trust != nil && slices.Contains(trustDirs, dir) {
			continue
		}
		l.Binds = append(l.Binds, Bind{From: dir, To: dir, Optional: true, System: true})
	}
}

// addCopy adds a copy of the host's file at the same path, if there is a regular file.
func (l *Layout) addCopy(path string) {
	from, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	if info, err := os.Lstat(from); err == nil && info.Mode().IsRegular() {
		l.Copies = append(l.Copies, Copy{from, path})
	}
}

var plainName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
})

// UserName returns the name of the command's uid in its /etc/passwd: $USER if the uid is also that
// of this process, and not root's, and $USER is an ordinary name; else "server". UserName does not
// query the host's user database, which may be on a network.
func UserName(uid uint32) string {
	if name := os.Getenv("USER"); uint32(os.Getuid()) == uid && uid != 0 && plainName().MatchString(name) && name != "root" && name != "nobody" {
		return name
	}
	return "server"
}

// Shell returns the shell for the command's /etc/passwd: $SHELL if it names a file in
// /bin or /usr/bin, else /bin/sh.
func Shell() string {
	s := os.Getenv("SHELL")
	breaksLine := strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == ':' })
	if (names.Under(s, "/bin") || names.Under(s, "/usr/bin")) && filepath.Clean(s) == s && !breaksLine {
		if _, err := os.Stat(s); err == nil {
			return s
		}
	}
	return "/bin/sh"
}
