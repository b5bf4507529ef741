package grantflags

import (
	"errors"
	"fmt"
	"os"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/written"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// AskLinks asks on the terminal about each root of the command line whose path
// passes a link that others can change, and puts the place where the path leads into
// the grant. Without a terminal it leaves the grants alone: the session refuses them.
func AskLinks(grants []guard.Grant) error {
	if !cli.IsTerminal(os.Stdin) {
		return nil
	}
	for i := range grants {
		g := &grants[i]
		var link *guard.LinkError
		if err := written.CheckLinks(g.Dir); !errors.As(err, &link) {
			continue // any other error is the session's to tell
		}
		what := fmt.Sprintf("%s passes the link %s, which %s can change, and leads to %s\n",
			names.Quote(link.Asked), names.Quote(link.Link), link.Others, names.Quote(link.Resolved))
		if err := cli.Confirm(what, fmt.Sprintf("Grant %s as the root %s?", names.Quote(link.Resolved), names.Quote(string(g.Root)))); err != nil {
			return err
		}
		g.Dir = link.Resolved
	}
	return nil
}
