package distro

import (
	"strings"
	"testing"
)

// The text names the packages, and the command of the distribution if the distribution is known.
func TestInstall(t *testing.T) {
	for _, tc := range []struct{ release, want string }{
		{"PRETTY_NAME=\"Debian GNU/Linux 13\"\nID=debian\n", "install fuse3: apt install fuse3 (as root)"},
		{"ID=ubuntu\nID_LIKE=debian\n", "apt install fuse3"},
		{"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "apt install fuse3"},
		{"NAME='Fedora Linux'\nID=fedora\n", "dnf install fuse3"},
		{"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf install fuse3"},
		{"ID=arch\n", "pacman -S fuse3"},
		{"ID=manjaro\nID_LIKE=arch", "pacman -S fuse3"},
		{"ID='alpine'\n", "apk add fuse3"},
		{"ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n", "zypper install fuse3"},
		{"ID=nixos\n", "install fuse3 with your distribution's package manager"},
		{"", "with your distribution's package manager"},
	} {
		if got := install(tc.release, []string{"fuse3"}); !strings.Contains(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.release, got, tc.want)
		}
	}
	if got := install("ID=alpine", []string{"fuse3", "bubblewrap"}); got != "install fuse3 bubblewrap: apk add fuse3 bubblewrap (as root)" {
		t.Errorf("%q", got)
	}
}
