package cli

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/names"
)

// planUndo decides for each selected server whether to unwrap it, and returns the new document. The
// backups show which servers wrap has wrapped, and which servers a person has wrapped by hand.
// Without backups, planUndo unwraps all wrapped servers.
func (w *wrapping) planUndo() ([]byte, error) {
	files, err := w.file.backups()
	if err != nil {
		return nil, err
	}
	var before []*hostconfig.Config
	for i, f := range files {
		if i == 0 {
			w.first = f.path
		}
		// A backup that cannot be read is ignored.
		if c, err := hostconfig.Parse(w.file.path, f.doc, w.program); err == nil {
			before = append(before, c)
		}
	}
	if err := w.findPrograms(before); err != nil {
		return nil, err
	}
	var unwrap []*hostconfig.Server
	for _, s := range w.conf.Servers {
		was := plainServer(before, s)
		_, ok := s.Inner()
		r := wrapServer{Name: s.Name, Project: s.Project, Line: s.Line}
		switch named := len(w.servers) > 0; {
		case !w.isSelected(s):
			r.State = "not named"
		case notStarted[s.Kind] != "":
			r.State = notStarted[s.Kind]
		case s.Kind == hostconfig.Stdio:
			r.State = "not wrapped"
		case ok && (was != nil || len(before) == 0 || named):
			r.State = "unwrap"
			unwrap = append(unwrap, s)
			if was != nil {
				r.Notes = commandChanges(was, s)
			}
		case ok:
			r.State = "by hand"
		case was != nil || named:
			r.State = "cannot"
		default:
			r.State = "not ours"
		}
		w.res.Servers = append(w.res.Servers, r)
	}
	doc := w.conf.Unwrap(unwrap)
	for _, f := range files {
		if bytes.Equal(f.doc, doc) {
			w.exact, w.res.Exact = f.path, true
			break
		}
	}
	return doc, nil
}

// findPrograms reads the document again if the backups show that a server was wrapped with a
// --rootsfs of another name than rootsfs.
func (w *wrapping) findPrograms(before []*hostconfig.Config) error {
	programs := []string{w.program}
	for _, s := range w.conf.Servers {
		if s.Err != nil || s.Kind != hostconfig.Stdio || len(s.Args) == 0 || s.Args[0] != "run" {
			continue
		}
		i := slices.Index(s.Args, "--") + 1
		if was := plainServer(before, s); was != nil && i > 0 && i < len(s.Args) && s.Command != was.Command && s.Args[i] == was.Command {
			programs = append(programs, s.Command.Raw())
		}
	}
	if len(programs) == 1 {
		return nil
	}
	var err error
	w.conf, err = hostconfig.Parse(w.file.path, w.file.doc, programs...)
	return err
}

// plainServer returns the server s in the unwrapped form, from the first backup that has this form;
// nil: no backup has it.
func plainServer(before []*hostconfig.Config, s *hostconfig.Server) *hostconfig.Server {
	for _, c := range before {
		for _, b := range c.Servers {
			if b.Err == nil && b.Kind == hostconfig.Stdio && b.Name == s.Name && b.Project == s.Project {
				return b
			}
		}
	}
	return nil
}

// commandChanges returns a note if a person has changed the server's command since it was wrapped.
func commandChanges(was, s *hostconfig.Server) []names.Text {
	i, _ := s.Inner()
	if s.Args[i] == was.Command && slices.Equal(s.Args[i+1:], was.Args) {
		return nil
	}
	return []names.Text{names.Textf("its command was changed since it was wrapped, from %s; the change stays", names.Quote(was.Command))}
}

// notUnwrapped returns texts that name the servers that could not be unwrapped, with their lines.
func (w *wrapping) notUnwrapped() []string {
	var list []string
	for _, s := range w.res.Servers {
		if s.State == "cannot" {
			list = append(list, fmt.Sprintf("server %s (line %d)", names.Quote(s.Name), s.Line))
		}
	}
	return list
}
