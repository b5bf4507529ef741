package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/console"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/records"
)

func newConsoleCmd(a *app) *cobra.Command {
	open, verbose := false, false
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show every session in a browser: see, approve, revoke",
		Long: `Serve a page for the browser on this machine: every live session with its roots and
what happens in them, the questions of servers that wait for your consent, the
records, and the means to revoke a root, a session or everything. It is served on
the loopback address until interrupted; the sessions go on without it.

The link that is printed works once, for five minutes; pressing Enter makes
another one. Whoever has the link before you open it can do what the page can:
do not send it to anybody. From another machine, forward the port with ssh -L,
under the same number.

In a terminal, "rootsfs top" does the same.`,
		Example: `  rootsfs console
  rootsfs console --open
  rootsfs console --json | jq -r .url`,
		Args: nargs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.console(cmd.Context(), open, verbose) },
	}
	cmd.Flags().BoolVar(&open, "open", false, "open the page in the browser, too")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log requests that are turned away")
	jsonFlag(a, cmd)
	return cmd
}

// consoleMessage is the line with --json; every new link is one more.
type consoleMessage struct {
	URL   string    `json:"url"`
	Until time.Time `json:"until"` // it can be used once, before
}

func (a *app) console(ctx context.Context, open, verbose bool) error {
	// The keys of the page are in this process's memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("harden the process: %w", err)
	}
	store, err := recordStore()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if verbose {
		log = slog.New(slog.NewTextHandler(a.stderr, nil))
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	s, err := console.New(ctx, console.Config{Log: log, Records: store})
	if err != nil {
		return err
	}
	link := s.Link()
	if err := a.sayLink(link); err != nil {
		return err
	}
	if open {
		done, err := openPage(ctx, link)
		if err != nil {
			a.fail(fmt.Errorf("the browser could not be started: %w; open the link by hand", err))
		} else {
			defer done()
		}
	}
	go a.moreLinks(s)
	return s.Serve(ctx)
}

// recordStore is where the records of all sessions are.
func recordStore() (*records.Store, error) {
	dir, err := config.AuditDir()
	if err != nil {
		return nil, err
	}
	return &records.Store{Dir: dir, Sessions: func() ([]string, error) { return auditSessions(dir) }, Anchor: config.AnchorPath}, nil
}

func (a *app) sayLink(url string) error {
	if a.json {
		return a.line(consoleMessage{url, time.Now().Add(console.LinkFor)})
	}
	a.say("%s", url)
	a.say("open it in a browser on this machine; it works once, within %v. Enter: another link. Ctrl-C: the end", console.LinkFor)
	return nil
}

// moreLinks prints a new link for every line that is entered.
func (a *app) moreLinks(s *console.Server) {
	if a.stdin == nil {
		return
	}
	for in := bufio.NewScanner(a.stdin); in.Scan(); {
		if a.sayLink(s.Link()) != nil {
			return
		}
	}
}

// openPage starts the browser with a file that leads to the link: the link itself
// on a command line could be read by every user of the machine.
func openPage(ctx context.Context, link string) (done func(), err error) {
	state, err := config.StateDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(state, "console-*.html") // 0600
	if err != nil {
		return nil, err
	}
	name := f.Name()
	done = func() { _ = os.Remove(name) }
	_, err = fmt.Fprintf(f, "<!doctype html><meta charset=utf-8><title>rootsfs</title><meta http-equiv=refresh content=\"0; url=%s\">\n", link)
	if err = errors.Join(err, f.Close()); err == nil {
		browser := exec.CommandContext(ctx, "xdg-open", name)
		if err = browser.Start(); err == nil {
			go func() { _ = browser.Wait() }() // how it ended is the desktop's affair
		}
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}
