package cli

import (
	"path/filepath"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// keepToCeiling deletes the proposed command, e.Allow, if the ceiling of this machine would refuse
// what the command allows, or cannot be read. e.Advice then has the error. The error of a refusal
// names the line of the ceiling. args are the arguments of `rootsfs why`.
func (e *explanation) keepToCeiling(args []string) {
	ceiling, err := config.LoadCeiling()
	if err == nil {
		err = e.overCeiling(ceiling, args)
	}
	if err == nil {
		return
	}
	e.Allow = ""
	e.Advice = names.Text(names.EscapeQuoted(err.Error()) + "; only the administrator who has set this bound can change that")
}

// overCeiling returns the ceiling's refusal of the host or root that would allow the operation. It
// returns nil if the ceiling allows this host or root, or if none is known.
func (e *explanation) overCeiling(c *config.Ceiling, args []string) error {
	if e.host != "" {
		rule, err := network.ParseRule(e.host)
		if err != nil {
			return nil
		}
		return c.CheckHost(rule)
	}
	dir, mode := e.RootPath.Raw(), e.Mode
	switch {
	case e.Lacks != "":
		mode = e.widerMode()
	case dir == "" && len(args) > 0:
		if path, err := expandHome(args[0]); err == nil && filepath.IsAbs(path) {
			dir, mode = nearestExisting(path), modeFor(e.Op).Raw()
			if dir == "/" { // no command for / is proposed
				dir = path
			}
		}
	}
	rights, err := rules.ParseMode(mode)
	if err != nil || dir == "" {
		return nil
	}
	return c.CheckPath(session.Resolve(dir), rights)
}
