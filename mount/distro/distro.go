// Package distro says how to install what is missing in the words of the machine's own
// package manager: Debian's, Ubuntu's, Fedora's, Arch's, Alpine's, openSUSE's, and those of
// distributions that say in os-release that they are like one of these.
//
// # Promises
//
// The package names are those of the distribution. On one that is not known the package
// is named, and no command.
//
// # Not promised
//
// Nothing is installed, and whether a package is there is not looked at.
package distro

import (
	"os"
	"slices"
	"strings"
)

// managers are the commands that install a package, run as root, by the ID of a
// distribution in os-release(5).
var managers = []struct {
	ids     []string
	command string
}{
	{[]string{"debian", "ubuntu"}, "apt install"},
	{[]string{"fedora", "rhel", "centos"}, "dnf install"},
	{[]string{"arch"}, "pacman -S"},
	{[]string{"alpine"}, "apk add"},
	{[]string{"opensuse", "suse", "sles"}, "zypper install"},
}

// Install says how to install packages, whose names are the same everywhere, such as
// fuse3 or bubblewrap: "install fuse3: apt install fuse3 (as root)".
func Install(packages ...string) string { return install(release(), packages) }

func install(osRelease string, packages []string) string {
	list := strings.Join(packages, " ")
	for _, id := range identity(osRelease) {
		for _, m := range managers {
			if slices.Contains(m.ids, id) {
				return "install " + list + ": " + m.command + " " + list + " (as root)"
			}
		}
	}
	return "install " + list + " with your distribution's package manager"
}

// release is the text of os-release, "" if there is none.
func release() string {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if text, err := os.ReadFile(file); err == nil {
			return string(text)
		}
	}
	return ""
}

// identity lists the ID, and then what the distribution says it is like, the nearest
// first.
func identity(osRelease string) []string {
	var id, like []string
	for line := range strings.Lines(osRelease) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.ToLower(strings.Trim(value, `"'`))
		switch key {
		case "ID":
			id = []string{value}
		case "ID_LIKE":
			like = strings.Fields(value)
		}
	}
	return append(id, like...)
}
