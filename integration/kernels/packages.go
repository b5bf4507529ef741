package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// aptLimit bounds a call of apt.
const aptLimit = 10 * time.Minute

// findMirrors adds the mirrors of this machine's apt sources to those of the command line.
func (l *lab) findMirrors(ctx context.Context) error {
	out, err := call{limit: aptLimit}.run(ctx, "apt-get", "indextargets", "--format", "$(LABEL)|$(REPO_URI)")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if label, uri, ok := strings.Cut(strings.TrimSpace(line), "|"); ok && l.mirrors[label] == "" {
			l.mirrors[label] = uri
		}
	}
	return nil
}

// mirror returns the URL of a mirror that serves a distribution's suite.
func (l *lab) mirror(d *distribution, suite string) (string, error) {
	label := d.label
	if d == debian && strings.HasSuffix(suite, "-security") {
		label += "-Security"
	}
	if l.mirrors[label] == "" {
		return "", fmt.Errorf("no mirror of %s among this machine's apt sources: name one with -mirror %s=URI", label, d.name)
	}
	return l.mirrors[label], nil
}

// archive is a configuration of apt for some suites. It is separate from the machine's own one.
type archive struct {
	dir string
	env []string
}

// open returns the archive of a distribution's suites with fresh lists. It leaves out suites
// that have no mirror, and fails if none is left.
func (l *lab) open(ctx context.Context, d *distribution, suites []string) (*archive, error) {
	keyring, err := l.keyring(ctx, d)
	if err != nil {
		return nil, err
	}
	var sources strings.Builder
	var missing error
	for _, suite := range suites {
		uri, err := l.mirror(d, suite)
		if err != nil {
			missing = err
			progress("%s is left out: %v", suite, err)
			continue
		}
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s main\n", keyring, uri, suite)
	}
	if sources.Len() == 0 {
		return nil, missing
	}
	a := &archive{dir: filepath.Join(l.cache, "apt-"+strings.Join(suites, "-"))}
	conf := filepath.Join(a.dir, "apt.conf")
	a.env = []string{"APT_CONFIG=" + conf}
	for _, sub := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	// The machine's own proxies and credentials still apply: apt reads /etc/apt/apt.conf.d.
	text := fmt.Sprintf("Dir::State %q;\nDir::Cache %q;\nDir::Etc::sourcelist %q;\nDir::Etc::sourceparts \"-\";\nAPT::Sandbox::User \"root\";\n",
		a.dir+"/state", a.dir+"/cache", a.dir+"/sources.list")
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(a.dir+"/sources.list", []byte(sources.String()), 0o644); err != nil {
		return nil, err
	}
	_, err = call{limit: aptLimit, env: a.env}.run(ctx, "apt-get", "update", "-q", "--error-on=any")
	return a, err
}

// keyring returns the file with the keys that verify a distribution's archive. If neither this
// machine nor the cache has Ubuntu's keys, keyring fetches them: Debian has a package of Ubuntu's
// keys.
func (l *lab) keyring(ctx context.Context, d *distribution) (string, error) {
	const dir = "usr/share/keyrings"
	for _, root := range []string{"/", l.cache} {
		if path := filepath.Join(root, dir, d.keyring); exists(path) {
			return path, nil
		}
	}
	if d == debian {
		return "", fmt.Errorf("there is no /%s/%s: install %s", dir, d.keyring, d.keys)
	}
	a, err := l.open(ctx, debian, []string{keysRelease})
	if err != nil {
		return "", err
	}
	debs, err := a.download(ctx, []string{d.keys})
	if err != nil {
		return "", err
	}
	return filepath.Join(l.cache, dir, d.keyring), unpack(ctx, debs, l.cache)
}

// download fetches packages and returns the paths of their .deb files.
func (a *archive) download(ctx context.Context, packages []string) ([]string, error) {
	dir := filepath.Join(a.dir, "debs", packages[0])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := (call{limit: aptLimit, dir: dir, env: a.env}).run(ctx, "apt-get", append([]string{"download", "-q"}, packages...)...); err != nil {
		return nil, err
	}
	var debs []string
	for _, p := range packages {
		found, err := filepath.Glob(filepath.Join(dir, p+"_*.deb"))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("apt-get downloaded no %s: %w", p, err)
		}
		debs = append(debs, found[len(found)-1])
	}
	return debs, nil
}

func unpack(ctx context.Context, debs []string, dir string) error {
	for _, deb := range debs {
		if _, err := (call{limit: 5 * time.Minute}).run(ctx, "dpkg-deb", "-x", deb, dir); err != nil {
			return err
		}
	}
	return nil
}

// newest returns the packages of the newest image that has all its parts. The image's own
// package is the first. Archives keep images whose modules they have dropped.
func (a *archive) newest(ctx context.Context, image *regexp.Regexp) ([]string, error) {
	out, err := call{limit: aptLimit, env: a.env}.run(ctx, "apt-cache", "pkgnames", "linux-image-")
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(strings.Fields(out), func(name string) bool { return !image.MatchString(name) })
	slices.SortFunc(names, func(x, y string) int { return compareNumbers(y, x) })
	err = fmt.Errorf("the archive has no package %s", image)
	for _, name := range names {
		var packages []string
		if packages, err = a.withParts(ctx, name); err == nil {
			return packages, nil
		}
	}
	return nil, err
}

// withParts returns the names of an image's package and of the packages with its kernel and
// modules. It fails if the archive does not have all of them.
func (a *archive) withParts(ctx context.Context, image string) ([]string, error) {
	packages := []string{image}
	for i := 0; i < len(packages); i++ {
		out, err := call{limit: aptLimit, env: a.env}.run(ctx, "apt-cache", "show", "--no-all-versions", packages[i])
		if err != nil || out == "" { // apt prints nothing for a name that only other packages mention
			return nil, fmt.Errorf("the archive has no %s, which %s needs", packages[i], image)
		}
		for _, name := range kernelParts(out) {
			if !slices.Contains(packages, name) {
				packages = append(packages, name)
			}
		}
	}
	return packages, nil
}

var partName = regexp.MustCompile(`^linux-(binary|modules)-\S+`)

// kernelParts returns the dependencies in a package's description that are parts of a kernel.
func kernelParts(description string) []string {
	var parts []string
	for line := range strings.Lines(description) {
		depends, ok := strings.CutPrefix(line, "Depends: ")
		if !ok {
			continue
		}
		for _, d := range strings.Split(depends, ", ") {
			if name := partName.FindString(d); name != "" {
				parts = append(parts, name)
			}
		}
	}
	return parts
}

var number = regexp.MustCompile(`\d+`)

// compareNumbers compares names by the numbers in them, and equal numbers by the whole names.
func compareNumbers(a, b string) int {
	numbers := func(s string) []int {
		var list []int
		for _, n := range number.FindAllString(strings.TrimSuffix(s, "amd64"), -1) {
			i, _ := strconv.Atoi(n)
			list = append(list, i)
		}
		return list
	}
	return cmp.Or(slices.Compare(numbers(a), numbers(b)), strings.Compare(a, b))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
