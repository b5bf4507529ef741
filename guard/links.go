package guard

import (
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// CheckLinks returns a *rules.LinkError, in an *Error, if path passes a link that another user
// can change, or that a program can change or could change in the past. The end of path need not
// exist.
func (g *Registry) CheckLinks(path string) error {
	resolved, links, err := g.cfg.Opener.Trace(path)
	if err != nil {
		return err
	}
	return g.judgeLinks(path, resolved, links)
}

func (g *Registry) judgeLinks(asked, resolved string, links []rules.Link) error {
	return rules.CheckLinks(asked, resolved, links, g.writer)
}

// writer names the programs that can write in the directory of a link, or could in the past;
// "" if there are none.
func (g *Registry) writer(l *rules.Link) string {
	found := ""
	g.snap.Load().eachOuter(l.Path, l.Location, func(r *root) {
		if r.policy.Load().Rights.Mutating() {
			found = "the programs of the writable root " + names.Quote(string(r.name))
		}
	})
	if found == "" && g.cfg.History != nil {
		if dir := g.cfg.History.Writer(l.Path); dir != "" {
			found = "programs for which " + names.Quote(dir) + " was a writable root"
		}
	}
	return found
}

// NoteWritable adds a directory outside the roots to the history (Config.History) before
// programs can write it: for example, a HOME that is kept for later sessions. From then on a
// grant is refused if its path passes a link in that directory. dir is a path without links.
func (g *Registry) NoteWritable(dir string) error { return g.noteWritable(dir, ReadWrite) }

// noteWritable adds a directory to the history, before programs can write it, if the rights permit
// changes.
func (g *Registry) noteWritable(dir string, rights Rights) error {
	if g.cfg.History == nil || !rights.Mutating() {
		return nil
	}
	return g.cfg.History.NoteWritable(dir)
}
