package beneath

import (
	"errors"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Stage implements guard.Opener.
func (o Opener) Stage(src guard.Source, g *guard.Grant) (guard.Source, error) {
	if o.Stages == "" && g.Store == "" {
		return nil, &guard.Error{Kind: names.Invalid, Err: errors.New("nothing can be staged here: use :rw")}
	}
	return nil, &guard.Error{Kind: names.Invalid, Err: errors.New("staged roots are not supported yet: use :rw")}
}
