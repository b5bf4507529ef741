package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// RootReservedPaths returns the ReservedPaths and, in addition, the directory of the HOMEs that are
// kept for agents and servers. A root in that directory would give the agent of one repository the
// logins and the history of another repository's agent. ReservedPaths omits the directory, because
// kept HOMEs and sockets may lie in it.
func RootReservedPaths(point string, more []rules.ReservedPath) ([]rules.ReservedPath, error) {
	if homes, err := xdg.Data(); err == nil { // otherwise there are no kept HOMEs
		more = append(slices.Clone(more), rules.ReservedPath{
			Path: homes, What: "the HOMEs that are kept for agents",
			Remedy: "choose another directory, or give a run that HOME with --home DIRECTORY",
		})
	}
	return ReservedPaths(point, more)
}

// ReservedPaths returns the resolved paths of rootsfs itself and of more. No root may contain such
// a path or lie in it, even if nothing exists at the path yet.
func ReservedPaths(point string, more []rules.ReservedPath) ([]rules.ReservedPath, error) {
	state, err := config.StateDir()
	if err != nil {
		return nil, err
	}
	var all []rules.ReservedPath
	if point != "" {
		all = append(all, rules.ReservedPath{Path: point, What: "the mountpoint"})
	}
	all = append(all,
		rules.ReservedPath{Path: control.RuntimeDir(), What: "the session directory"},
		rules.ReservedPath{Path: state, What: "the directory of audit files and logs"},
	)
	if conf, err := config.DefaultPath(); err == nil {
		all = append(all, rules.ReservedPath{Path: filepath.Dir(conf), What: "the configuration"})
	}
	all = append(all, more...)
	for i := range all {
		all[i].Path = Resolve(all[i].Path)
	}
	return all, nil
}

// resolveNamed resolves a host path that the owner has not chosen, such as a client's. It returns
// an error if the path passes a link that programs or other users can change.
func (s *Session) resolveNamed(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("it is not an absolute path")
	}
	if err := s.reg.CheckLinks(path); err != nil {
		return "", err
	}
	return Resolve(path), nil
}

// Resolve makes path absolute and follows the links of the part of path that exists. If there are
// too many links, it follows none.
func Resolve(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	end, err := names.WalkLinks(abs, func(s names.LinkStep) (string, error) {
		target, _ := os.Readlink(s.Path()) // "" if it is no link, or missing
		return target, nil
	}, nil)
	if err != nil {
		return abs // too many links
	}
	return end
}
