package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Programs look for credentials in files of HOME. Such a file of the owner's can be the source of
// a credential. The program has a file of the same name with placeholders. That file has only the
// text that keyFile.show returns, so no other credential of the owner's file gets into it.

// HomeFile is a file that the program finds in its HOME, by its path there.
type HomeFile struct {
	Path string
	Data []byte
}

// keyFile is a kind of file with credentials.
type keyFile struct {
	// find returns the credential that the owner's file has for a host; false: it has none.
	find func(text string, u URL, o *owner) (found, bool)
	// show returns the files for the program. It is called with one secret or more.
	show func(list []shownSecret) []HomeFile
}

// shownSecret is a secret whose placeholder is in a file.
type shownSecret struct {
	*Secret
	Credential
}

// keyFiles has the kinds by the values of Secret.ShownAs.
var keyFiles = map[string]keyFile{
	"~/.netrc":               {findNetrc, showNetrc},
	"~/.npmrc":               {findNpmrc, showNpmrc},
	"~/.config/gh/hosts.yml": {findHosts, showHosts},
	"~/.docker/config.json":  {findDocker, showDocker},
	"~/.aws/credentials":     {findAWS, showAWS},
}

const awsFile = "~/.aws/credentials"

// CheckShown returns an error if text is not valid for Secret.ShownAs.
func CheckShown(text string) error {
	if _, ok := keyFiles[text]; !ok {
		return fmt.Errorf("%s is not a file that rootsfs can make: write one of %s", names.Quote(text), strings.Join(slices.Sorted(maps.Keys(keyFiles)), ", "))
	}
	return nil
}

// shownAs returns the file that the placeholder is in, "" for none.
func (s *Secret) shownAs() string {
	if s.ShownAs == "" {
		return s.preset().shownAs
	}
	return s.ShownAs
}

// IsSigned reports whether the host gets signatures by the credential, and not the credential.
func (s *Secret) IsSigned() bool { return s.shownAs() == awsFile }

// ownersPath returns the path of the owner's file that is written as ~/PATH. Below ~/.config it
// uses XDG_CONFIG_HOME.
func ownersPath(file string) (string, error) {
	rest := strings.TrimPrefix(file, "~/")
	if below, ok := strings.CutPrefix(rest, ".config/"); ok {
		return xdg.Path("XDG_CONFIG_HOME", ".config", below)
	}
	home := xdg.Home()
	if home == "" {
		return "", errors.New("HOME is not set")
	}
	return filepath.Join(home, rest), nil
}

// Files returns the owner's files in which the credential is looked for.
func (s *Secret) Files() (list []string) {
	switch files := s.preset().files; {
	case s.File != "":
		return []string{s.File}
	case len(s.Command) > 0:
		return nil
	case s.shownAs() != "":
		return pathsOf(s.shownAs())
	default:
		return pathsOf(files...)
	}
}

func pathsOf(files ...string) (list []string) {
	for _, file := range files {
		if path, err := ownersPath(file); err == nil {
			list = append(list, path)
		}
	}
	return list
}

// errNone is the error of a source that has no credential for the host.
var errNone = errors.New("there is none")

// findOwnersCredential finds the credential in the owner's own files, programs and variables.
func (s *Secret) findOwnersCredential(ctx context.Context, o *owner) (found, error) {
	p := s.preset()
	find := p.find
	if find == nil {
		find = (*Secret).findInFile
	}
	f, err := find(s, ctx, o)
	if !errors.Is(err, errNone) {
		return f, err
	}
	if f, ok := s.findInVariables(o); ok {
		return f, nil
	}
	where := s.Files()
	for i, path := range where {
		where[i] = names.Quote(path)
	}
	if p.program != "" {
		where = append(where, "`"+p.program+"`")
	}
	return found{}, fmt.Errorf("no credential for %s in %s, nor in the variable %s; file or command in a [[secret]] block names another source",
		s.URL, strings.Join(where, ", "), strings.Join(s.outsideVariables(), " or "))
}

// findInFile finds the credential in the owner's file that shownAs names.
func (s *Secret) findInFile(_ context.Context, o *owner) (found, error) {
	return o.findIn(s.shownAs(), keyFiles[s.shownAs()].find, s.URL)
}

// findIn finds the credential for a URL in the owner's file that is written as ~/PATH.
func (o *owner) findIn(file string, find func(text string, u URL, o *owner) (found, bool), u URL) (found, error) {
	path, err := ownersPath(file)
	if err != nil {
		return found{}, err
	}
	text, err := o.read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return found{}, errNone
	}
	if err != nil {
		return found{}, err
	}
	f, ok := find(string(text), u, o)
	if !ok {
		return found{}, errNone
	}
	f.from = path
	return f, nil
}

// outsideVariables returns the owner's variables that may hold the credential.
func (s *Secret) outsideVariables() []string {
	if host := ghHost(s.URL); s.Name == "gh" && host != "github.com" && !strings.HasSuffix(host, ".ghe.com") {
		return []string{"GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"} // gh sends GH_TOKEN and GITHUB_TOKEN to other hosts only
	}
	if s.isPreset() {
		return s.preset().outside
	}
	return []string{s.Name}
}

// findInVariables finds the credential in the owner's variables, and removes the variables that it
// has used from the environment of this process.
func (s *Secret) findInVariables(o *owner) (f found, ok bool) {
	if s.isPreset() && s.IsSigned() {
		return findKeysInVariables(o)
	}
	for _, name := range s.outsideVariables() {
		if value := o.lookup(name); value != "" && !s.IsSigned() {
			_ = os.Unsetenv(name) // fails only for an invalid name
			f := found{value: value}
			if user := s.preset().user; user != "" && s.Header == "" {
				f = loginOf(user, value, "")
			}
			f.from = "the variable " + name
			return f, true
		}
	}
	return found{}, false
}

// HomeFiles returns the files with the placeholders of the secrets in list. credentials has the
// credential of each secret, in the same order.
func HomeFiles(list []*Secret, credentials []Credential) (files []HomeFile) {
	by := map[string][]shownSecret{}
	for i, s := range list {
		if file := s.shownAs(); file != "" {
			by[file] = append(by[file], shownSecret{s, credentials[i]})
		}
	}
	for _, file := range slices.Sorted(maps.Keys(by)) {
		files = append(files, keyFiles[file].show(by[file])...)
	}
	return files
}

// KeyPaths returns the paths, below a HOME, of files in which programs look for credentials.
func KeyPaths() (list []string) {
	files := slices.Sorted(maps.Keys(keyFiles))
	for _, file := range append(files, presets["git"].files...) {
		list = append(list, strings.TrimPrefix(file, "~/"))
	}
	return append(list, ".gitconfig", ".config/git/config")
}

// madeBy is the first line of the files that HomeFiles makes. Files in JSON begin with madeInJSON.
const (
	madeBy     = "# made by rootsfs run: the keys here are placeholders\n"
	madeInJSON = "{\n\t\"rootsfs\": \"made by rootsfs run: the keys here are placeholders\""
)

// IsMade reports whether text begins like a file that HomeFiles has made.
func IsMade(text string) bool {
	return strings.HasPrefix(text, madeBy) || strings.HasPrefix(text, madeInJSON)
}

// login returns the user for a file of the program. The user in the owner's file stays outside,
// because some hosts take a token as the user.
func (s shownSecret) login() string {
	if s.User != "" {
		return s.User
	}
	return "rootsfs"
}
