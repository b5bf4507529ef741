// Package distro tells a user how to install missing packages with the machine's package
// manager. It knows Debian, Ubuntu, Fedora, RHEL, CentOS, Arch, Alpine, openSUSE and SLES,
// and distributions whose os-release names one of these in ID_LIKE.
// On an unknown distribution the text names the packages and no command.
//
// The package installs nothing and does not check what is installed. It does not
// translate package names: the caller passes names that every distribution uses.
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

// Install returns a text that says how to install packages: "install fuse3: apt install fuse3
// (as root)". The names must be the same on every distribution, such as fuse3 or bubblewrap.
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

// release returns the text of os-release, or "" if there is no such file.
func release() string {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if text, err := os.ReadFile(file); err == nil {
			return string(text)
		}
	}
	return ""
}

// identity returns the ID of the distribution, then the IDs in its ID_LIKE, in the order
// of os-release (the closest first).
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
