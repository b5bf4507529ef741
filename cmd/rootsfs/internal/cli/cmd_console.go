package cli

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/console"
)

const consoleLong = `Serve a page for the browser on this machine: every live session with its roots and
what happens in them, the questions of servers, the records, and buttons that revoke.
The page is served on the loopback address until interrupted; sessions go on without
it. In a terminal, "rootsfs top" does the same.

The link that is printed works once, for five minutes; Enter prints another. Whoever
opens it first can do what the page can: do not send it to anybody. From another
machine, forward the port with ssh -L, under the same number.`

const consoleExamples = `  rootsfs console
  rootsfs console --json | jq -r .url`

func (a *app) newConsoleCmd() *cobra.Command {
	verbose := false
	cmd := &cobra.Command{
		Use:     "console",
		Short:   "See, approve and revoke in the browser",
		Long:    consoleLong,
		Example: consoleExamples,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.console(cmd.Context(), verbose) },
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log requests that are refused")
	a.jsonFlag(cmd)
	return cmd
}

// consoleMessage is the line that --json prints, at the start and for every new link.
type consoleMessage struct {
	URL   string    `json:"url"`   // link that works once
	Until time.Time `json:"until"` // when it stops working
}

func (a *app) console(ctx context.Context, verbose bool) error {
	// The keys of the page are in this process's memory, where no other process of the user may
	// read them.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("harden the process: %w", err)
	}
	store, err := recordStore()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if verbose {
		log = newLog(a.Stderr, slog.LevelInfo, logAttr)
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	s, err := console.New(ctx, console.Config{Log: log, Records: store})
	if err != nil {
		return err
	}
	if err := a.printLink(s.Link()); err != nil {
		return err
	}
	go a.printMoreLinks(s)
	return s.Serve(ctx)
}

// recordStore returns the store of the records of all sessions.
func recordStore() (*auditview.Store, error) {
	dir, err := config.AuditDir()
	if err != nil {
		return nil, err
	}
	return &auditview.Store{Dir: dir, Sessions: func() ([]string, error) { return auditSessions(dir) }, Anchor: config.AnchorPath}, nil
}

func (a *app) printLink(link string) error {
	if a.JSON {
		return a.line(consoleMessage{link, time.Now().Add(console.LinkFor)})
	}
	a.say("%s", link)
	a.say("open it in a browser on this machine; it works once, within %v. Enter: another link. Ctrl-C: the end", console.LinkFor)
	return nil
}

// printMoreLinks prints a new link for each line of input.
func (a *app) printMoreLinks(s *console.Server) {
	if a.Stdin == nil {
		return
	}
	for in := bufio.NewScanner(a.Stdin); in.Scan(); {
		if a.printLink(s.Link()) != nil {
			return
		}
	}
}
