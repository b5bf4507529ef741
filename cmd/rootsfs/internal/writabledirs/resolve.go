package writabledirs

import (
	"path/filepath"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// Registry returns a registry for a command that only tries grants. The registry judges links by
// the recorded directories that programs could write, and records no directory itself.
func Registry(rules rules.RootRules) (*guard.Registry, error) {
	d, err := Open()
	if err != nil {
		return nil, err
	}
	return guard.NewRegistry(guard.Config{Opener: trialOpener{vfs.Opener()}, Rules: rules, History: d.readOnly()}), nil
}

// trialOpener stages nothing: a grant that is only tried changes nothing, so it needs no store.
type trialOpener struct{ guard.Opener }

// Stage implements guard.Opener.
func (trialOpener) Stage(src guard.Source, _ *guard.Grant) (guard.Source, error) { return src, nil }

// CheckLinks returns an error with a *rules.LinkError in its chain if path passes a
// link that a program or another user can change. The end of path need not exist.
func CheckLinks(path string) error {
	reg, err := Registry(rules.RootRules{})
	if err != nil {
		return err
	}
	return reg.CheckLinks(path)
}

// Resolve resolves the links of a path that the owner approves, after CheckLinks.
func Resolve(path string) (string, error) {
	if err := CheckLinks(path); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}
