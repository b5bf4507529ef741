package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// beforeSetup are the packages that a machine must have before setup.sh runs. container.sh installs
// the same packages.
var beforeSetup = []string{"ca-certificates", "gcc", "libc6-dev", "make", "git"}

// programDirs are the directories of a PATH in which Debian's packages put programs.
var programDirs = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/games"}

// linkPrograms fills dir with a link to each program that a test may call: the programs of Go and
// Node.js, and the programs of some Debian packages. These are the packages in beforeSetup, those
// that setup.sh names, the essential ones, and all their dependencies. With dir as its PATH, a test
// that calls any other program fails on every machine, not only on a machine that lacks the program.
//
// On a machine without dpkg linkPrograms returns an error that wraps exec.ErrNotFound.
func linkPrograms(dir, goCommand string) error {
	table, err := exec.Command("sh", "integration/setup.sh", "list").Output()
	if err != nil {
		return fmt.Errorf("setup.sh list: %w", err)
	}
	packages, err := installedPackages()
	if err != nil {
		return err
	}
	wanted := slices.Clone(beforeSetup)
	programs := []string{goCommand, "gofmt", "node", "npm", "npx"} // often installed without a package
	for line := range strings.Lines(string(table)) {
		check, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ := strings.Cut(rest, " ")
		wanted = append(wanted, name)
		if packages[name] == nil {
			programs = append(programs, check)
		}
	}
	paths, err := packages.programs(wanted)
	if err != nil {
		return err
	}
	for _, p := range programs {
		if path, err := exec.LookPath(p); err == nil { // not every check in setup.sh is a program
			paths[filepath.Base(p)] = path
		}
	}
	for name, path := range paths {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// debian holds the installed packages of a machine by their names and the names that they provide.
type debian map[string]*debianPackage

type debianPackage struct {
	name      string
	isNeeded  bool       // essential, or of a priority that every system has
	dependsOn [][]string // one package of each list is needed
}

// installedPackages returns the packages that dpkg lists as installed.
func installedPackages() (debian, error) {
	out, err := exec.Command("dpkg-query", "-W", "-f", `${Package}\t${db:Status-Abbrev}\t${Essential}${Priority}\t${Provides}\t${Pre-Depends}, ${Depends}\n`).Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-query: %w", err)
	}
	packages, provided := debian{}, debian{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 || !strings.HasPrefix(f[1], "ii") {
			continue
		}
		p := &debianPackage{name: f[0], isNeeded: strings.HasPrefix(f[2], "yes") || strings.HasSuffix(f[2], "required")}
		for d := range strings.SplitSeq(f[4], ",") {
			p.dependsOn = append(p.dependsOn, packageNames(d, "|"))
		}
		packages[p.name] = p
		for _, name := range packageNames(f[3], ",") {
			provided[name] = p
		}
	}
	for name, p := range provided {
		if packages[name] == nil {
			packages[name] = p
		}
	}
	return packages, nil
}

// packageNames returns the names in a list of packages, without versions and architectures.
func packageNames(list, separator string) (names []string) {
	for item := range strings.SplitSeq(list, separator) {
		if fields := strings.Fields(item); len(fields) > 0 {
			name, _, _ := strings.Cut(fields[0], ":")
			names = append(names, name)
		}
	}
	return names
}

// programs returns the paths of programs by the programs' names: of the wanted packages, of the
// packages that every system has, and of all their dependencies.
func (d debian) programs(wanted []string) (map[string]string, error) {
	for _, p := range d {
		if p.isNeeded {
			wanted = append(wanted, p.name)
		}
	}
	closure := map[string]bool{}
	for len(wanted) > 0 {
		p := d[wanted[0]]
		wanted = wanted[1:]
		if p == nil || closure[p.name] {
			continue
		}
		closure[p.name] = true
		for _, names := range p.dependsOn {
			if i := slices.IndexFunc(names, func(n string) bool { return d[n] != nil }); i >= 0 {
				wanted = append(wanted, names[i])
			}
		}
	}
	out, err := exec.Command("dpkg-query", append([]string{"-L"}, slices.Sorted(maps.Keys(closure))...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-query -L: %w", err)
	}
	owned := map[string]bool{}
	paths := map[string]string{}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSuffix(path, "\n")
		owned[path] = true
		if slices.Contains(programDirs, filepath.Dir(path)) {
			paths[filepath.Base(path)] = path
		}
	}
	for name, path := range alternatives() {
		if paths[name] == "" && owned[path] {
			paths[name] = path
		}
	}
	if len(paths) == 0 {
		return nil, errors.New("dpkg-query -L: no program is listed")
	}
	return paths, nil
}

// alternatives returns the paths of the programs that update-alternatives chose, by the programs'
// names, such as awk and cc.
func alternatives() map[string]string {
	chosen := map[string]string{}
	links, _ := filepath.Glob("/etc/alternatives/*") // fails only for a malformed pattern
	for _, link := range links {
		if path, err := os.Readlink(link); err == nil {
			chosen[filepath.Base(link)] = path
		}
	}
	return chosen
}
