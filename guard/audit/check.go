package audit

import "github.com/rootsfs/rootsfs/guard"

var _ guard.Reserver = (*Log)(nil)
