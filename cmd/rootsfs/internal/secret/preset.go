package secret

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
)

// preset has the defaults of a secret that has the name of a program, such as gh.
type preset struct {
	shownAs   string
	files     []string // of the owner's that may have the credential, if shownAs is ""
	program   string   // the command that prints the credential, for messages
	outside   []string // the owner's variables that may have the credential
	user      string   // of HTTP Basic, if a variable has the credential; "": the same header as for other secrets
	variables []string // the program's, with the placeholders, in the order of Credential.parts
	// find is the source; nil: the owner's file of shownAs.
	find func(*Secret, context.Context, *owner) (found, error)
	// url returns the URL of a secret for which the owner has named none.
	url func(*owner) (string, error)
}

// presets are the presets by the names of secrets.
var presets map[string]preset

func init() { // an initializer would refer to itself: functions of the presets use presets
	at := func(url string) func(*owner) (string, error) {
		return func(*owner) (string, error) { return url, nil }
	}
	presets = map[string]preset{
		"git": {
			files: []string{"~/.git-credentials", "~/.config/git/credentials", "~/.netrc"}, program: "git credential fill",
			outside: []string{"GIT_TOKEN"}, user: "x-access-token", find: (*Secret).findGit, url: at("https://github.com"),
		},
		"gh": {
			shownAs: "~/.config/gh/hosts.yml", program: "gh auth token", outside: []string{"GH_TOKEN", "GITHUB_TOKEN"},
			variables: []string{"GH_TOKEN"}, find: (*Secret).findGH, url: at("https://api.github.com"),
		},
		"npm": {
			shownAs: "~/.npmrc", outside: []string{"NPM_TOKEN"}, variables: []string{"NPM_TOKEN"}, url: npmURL,
		},
		"aws": {
			shownAs: awsFile, outside: []string{"AWS_ACCESS_KEY_ID"},
			variables: []string{"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"}, url: awsURL,
		},
	}
}

func (s *Secret) preset() preset { return presets[s.Name] }

func (s *Secret) isPreset() bool { _, ok := presets[s.Name]; return ok }

// SetDefaultURL sets the URL of a secret that has a preset: the owner's own files may name the URL.
func (s *Secret) SetDefaultURL(judge *writabledirs.Judge, env []string) error {
	if !s.isPreset() {
		return nil
	}
	text, err := s.preset().url(&owner{judge, env})
	if err != nil {
		return err
	}
	if s.URL, err = ParseURL(text); err != nil {
		return fmt.Errorf("%w; --secret %s=https://HOST names another host", err, s.Name)
	}
	return nil
}

// npmURL returns the registry that the owner's .npmrc names, or npmRegistry if the file names none.
func npmURL(o *owner) (string, error) {
	registry := npmRegistry
	_, err := o.findIn("~/.npmrc", func(text string, _ URL, o *owner) (found, bool) {
		if values, _ := npmValues(text, o); values["registry"] != "" {
			registry = values["registry"]
		}
		return found{}, false
	}, URL{})
	if errors.Is(err, errNone) {
		err = nil
	}
	return strings.TrimRight(registry, "/"), err
}

// findGH finds gh's token: in hosts.yml, or in the keyring, which gh itself reads.
func (s *Secret) findGH(ctx context.Context, o *owner) (found, error) {
	f, err := s.findInFile(ctx, o)
	if !errors.Is(err, errNone) {
		return f, err
	}
	text, err := o.output(ctx, program{words: []string{"gh", "auth", "token", "--hostname", ghHost(s.URL)}, isQuiet: true})
	value := strings.TrimSpace(string(text))
	if err == nil && value != "" {
		return found{value: value, from: "`gh auth token`"}, nil
	}
	if err != nil && !errors.Is(err, exec.ErrNotFound) && !errors.As(err, new(*exec.ExitError)) {
		return found{}, err
	}
	return found{}, errNone
}
