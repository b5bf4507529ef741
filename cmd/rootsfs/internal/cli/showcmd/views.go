package showcmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/console"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/records"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/top"
)

func (a *app) newConsoleCmd() *cobra.Command {
	verbose := false
	cmd := &cobra.Command{
		Use:   "console",
		Short: "See, approve and revoke in the browser",
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.console(cmd.Context(), verbose) },
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log requests that are refused")
	a.JSONFlag(cmd)
	return cmd
}

// consoleMessage is the line with --json; every new link is one more.
type consoleMessage struct {
	URL   string    `json:"url"`   // link that works once
	Until time.Time `json:"until"` // when it stops working
}

func (a *app) console(ctx context.Context, verbose bool) error {
	// The keys of the page are in this process's memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("harden the process: %w", err)
	}
	store, err := RecordStore()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if verbose {
		log = cli.NewLog(a.Stderr, slog.LevelInfo, cli.LogAttr)
	}
	ctx, cancel := cli.Interruptible(ctx)
	defer cancel()
	s, err := console.New(ctx, console.Config{Log: log, Records: store})
	if err != nil {
		return err
	}
	if err := a.printLink(s.Link()); err != nil {
		return err
	}
	go a.moreLinks(s)
	return s.Serve(ctx)
}

// RecordStore is where the records of all sessions are.
func RecordStore() (*records.Store, error) {
	dir, err := config.AuditDir()
	if err != nil {
		return nil, err
	}
	return &records.Store{Dir: dir, Sessions: func() ([]string, error) { return auditSessions(dir) }, Anchor: config.AnchorPath}, nil
}

func (a *app) printLink(link string) error {
	if a.JSON {
		return a.Line(consoleMessage{link, time.Now().Add(console.LinkFor)})
	}
	a.Say("%s", link)
	a.Say("open it in a browser on this machine; it works once, within %v. Enter: another link. Ctrl-C: the end", console.LinkFor)
	return nil
}

// moreLinks prints a new link for every line that is entered.
func (a *app) moreLinks(s *console.Server) {
	if a.Stdin == nil {
		return
	}
	for in := bufio.NewScanner(a.Stdin); in.Scan(); {
		if a.printLink(s.Link()) != nil {
			return
		}
	}
}

func (a *app) newTopCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "See, approve and revoke in the terminal",
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.top(cmd.Context()) },
	}
}

func (a *app) top(ctx context.Context) error {
	if in, ok := a.Stdin.(*os.File); !ok || !cli.IsTerminal(in) || !cli.IsTerminal(a.Stdout) {
		return cli.Usage(errors.New("top needs a terminal; without one: rootsfs status --json, or rootsfs status --watch"))
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	store, err := RecordStore()
	if err != nil {
		return err
	}
	ctx, cancel := cli.Interruptible(ctx)
	defer cancel()
	return top.Run(ctx, store)
}

func (a *app) newMetricsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print figures for Prometheus",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			ctx, cancel := cli.Interruptible(cmd.Context())
			defer cancel()
			// Whole or not at all: a file that is half of it would be read as
			// roots that have gone.
			var buf bytes.Buffer
			if err := c.Metrics(ctx, &buf); err != nil {
				return err
			}
			_, err = buf.WriteTo(a)
			return err
		},
	}
	a.SessionFlag(cmd)
	return cmd
}
