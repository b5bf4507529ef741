package main

import "regexp"

// kernel is a kernel that can be booted, and the source of its packages.
type kernel struct {
	name         string // as on the command line
	distribution *distribution
	suites       []string // releases in the distribution's archive, which apt calls suites
	// image matches the name of the kernel's package. The newest match whose modules are
	// available is booted.
	image *regexp.Regexp
	// parameters are added to the kernel's command line.
	parameters string
	remark     string // for the table
}

// kernels are the known kernels, oldest first. The first is the oldest one that Debian still
// serves; 6.1, 6.12 and 6.18 have long-term support; the last is Debian's newest.
var kernels = []kernel{
	{name: "5.10", distribution: debian, suites: []string{"bullseye", "bullseye-security"}, image: cloud(`5\.10\.0-\d+`)},
	{name: "6.1", distribution: debian, suites: []string{"bookworm", "bookworm-security"}, image: cloud(`6\.1\.0-\d+`)},
	{name: "6.12", distribution: debian, suites: []string{"trixie", "trixie-security"}, image: cloud(`6\.12\.[\d.]+\+deb13`)},
	{name: "6.17", distribution: debian, suites: []string{"trixie-backports"}, image: cloud(`6\.17\.[\d.]+\+deb13`)},
	{name: "6.18", distribution: debian, suites: []string{"trixie-backports"}, image: cloud(`6\.18\.[\d.]+\+deb13`)},
	{name: "6.19", distribution: debian, suites: []string{"trixie-backports"}, image: cloud(`6\.19\.[\d.]+\+deb13`)},
	{
		name: "7.0", distribution: ubuntu, suites: []string{"noble-updates", "noble-security"},
		image:      regexp.MustCompile(`^linux-image-7\.0\.0-\d+-generic$`),
		parameters: "restrictuserns=1", remark: "user namespaces restricted",
	},
	{name: "7.1", distribution: debian, suites: []string{"trixie-backports"}, image: cloud(`7\.1\.[\d.]+\+deb13`)},
	{name: "7.2", distribution: debian, suites: []string{"trixie-backports", "sid"}, image: cloud(`7\.2\.[\d.]+\+deb1[34]`)},
	{name: "7.3", distribution: debian, suites: []string{"trixie-backports", "sid"}, image: cloud(`7\.3\.[\d.]+\+deb1[34]`)},
}

// cloud returns a pattern for the names of Debian's kernel packages for virtual machines, which are
// the smallest. version is the pattern of the kernel's version.
func cloud(version string) *regexp.Regexp {
	return regexp.MustCompile(`^linux-image-` + version + `-cloud-amd64$`)
}

// distribution is a source of signed packages.
type distribution struct {
	name    string // as on the command line
	label   string // of its archive, in Release files
	keyring string
	// keys is the Debian package that has the keyring, for a machine of another distribution.
	keys string
}

var (
	debian = &distribution{name: "debian", label: "Debian", keyring: "debian-archive-keyring.gpg", keys: "debian-archive-keyring"}
	ubuntu = &distribution{name: "ubuntu", label: "Ubuntu", keyring: "ubuntu-archive-keyring.gpg", keys: "ubuntu-keyring"}
)
