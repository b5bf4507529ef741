package sandbox

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Shim is a program of a version manager. It chooses and runs a version of another program.
type Shim struct {
	Manager  string // its name, such as "asdf"
	Dir      string // where the manager keeps the versions
	Variable string // the variable that names Dir to the manager
	// Settings is the path, relative to HOME, of the file or directory there that the manager
	// reads; "": none, or it is in Dir.
	Settings string
	// KnowsDir reports whether the shim itself knows Dir, so that Variable need not name it.
	KnowsDir bool
}

// managers has the version managers with shims. Managers that work like rbenv are recognised by
// their names, see managerNamed.
var managers = []Shim{
	{Manager: "asdf", Variable: "ASDF_DATA_DIR", Settings: ".tool-versions"},
	{Manager: "mise", Variable: "MISE_DATA_DIR", Settings: ".config/mise"},
	{Manager: "proto", Variable: "PROTO_HOME"},
	{Manager: "volta", Variable: "VOLTA_HOME"},
}

// ShimOf returns the Shim for a program of the host. path is absolute, and may be a link. ok is
// false if the program is no shim, or the manager's directory has no versions.
func ShimOf(path string) (s Shim, ok bool) {
	dir := filepath.Dir(path)
	home := filepath.Dir(dir)
	target, _ := os.Readlink(path) // "" if it is no link
	if s, ok := rustupShim(path, target); ok {
		return s, true
	}
	isVolta := strings.HasPrefix(filepath.Base(target), "volta-shim") || filepath.Base(target) == "shim"
	if filepath.Base(dir) != "shims" && !(isVolta && filepath.Base(dir) == "bin") {
		return s, false
	}
	if !slices.ContainsFunc([]string{"installs", "versions", "tools", "plugins"}, func(name string) bool {
		info, err := os.Stat(filepath.Join(home, name))
		return err == nil && info.IsDir()
	}) {
		return s, false
	}
	own := strings.TrimPrefix(filepath.Base(home), ".")
	if isVolta {
		own = "volta"
	}
	for _, name := range []string{own, filepath.Base(target), calledManager(path)} {
		if s, ok = managerNamed(name); ok {
			s.Dir = home
			return s, true
		}
	}
	return Shim{Manager: own, Dir: home}, true
}

// rustupShim is ShimOf for rustup. The shims of rustup are symbolic or hard links to rustup. Its
// toolchains are not in ~/.cargo, which holds a credential, but in ~/.rustup beside it.
func rustupShim(path, target string) (Shim, bool) {
	dir := filepath.Dir(path)
	own, err := os.Stat(filepath.Join(dir, "rustup"))
	if filepath.Base(target) != "rustup" && err != nil {
		return Shim{}, false
	}
	if info, statErr := os.Stat(path); filepath.Base(target) != "rustup" && (statErr != nil || !os.SameFile(info, own)) {
		return Shim{}, false
	}
	s := Shim{Manager: "rustup", Variable: "RUSTUP_HOME", Dir: filepath.Join(filepath.Dir(filepath.Dir(dir)), ".rustup"), KnowsDir: true}
	if dir := os.Getenv("RUSTUP_HOME"); filepath.IsAbs(dir) {
		s.Dir = dir
	}
	real, err := filepath.EvalSymlinks(s.Dir)
	if err != nil {
		return Shim{}, false
	}
	s.Dir = real
	info, err := os.Stat(filepath.Join(real, "toolchains"))
	return s, err == nil && info.IsDir()
}

// managerNamed finds a manager by its name.
func managerNamed(name string) (Shim, bool) {
	if i := slices.IndexFunc(managers, func(m Shim) bool { return m.Manager == name }); i >= 0 {
		return managers[i], true
	}
	if base, ok := strings.CutSuffix(name, "env"); ok && len(base) > 0 && len(base) < 8 {
		return Shim{Manager: name, Variable: strings.ToUpper(name) + "_ROOT", KnowsDir: true}, true
	}
	return Shim{}, false
}

// calledManager returns the program that a shim executes, if the shim is a script: the word M in
// "exec M exec ..."; "" for others.
func calledManager(path string) string {
	f, err := openRegular(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || !bytes.HasPrefix(text, []byte("#!")) {
		return ""
	}
	words := strings.Fields(string(text))
	for i, w := range words {
		if i+1 < len(words) && words[i+1] == "exec" && i > 0 && words[i-1] == "exec" {
			return filepath.Base(strings.Trim(w, `"'`))
		}
	}
	return ""
}
