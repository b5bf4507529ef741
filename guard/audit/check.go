package audit

import "github.com/rootsfs/rootsfs/guard"

var _ guard.Auditor = (*Log)(nil)
