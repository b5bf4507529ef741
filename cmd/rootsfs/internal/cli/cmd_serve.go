package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// serveFlags are the flags of `rootsfs serve`.
type serveFlags struct {
	sessionFlags
	http        httpFlags
	ask         bool
	clientRoots string
}

const serveLong = `Serve the approved roots as MCP tools and resources, in place of
@modelcontextprotocol/server-filesystem: over standard input and output, or with
--http over Streamable HTTP. Nothing is mounted. Files are named ROOT/path,
absolutely, or by file:// URI. Tools that no root allows are not offered. SPEC is
written as for --root; use one of the two.

With --session, serve the roots of a live session instead, such as that of a mount.
With --ask, paths outside of the roots are put before the user of the MCP host. Over
HTTP, and where the host cannot ask, they wait for "rootsfs consent". --http prints
the URL and the bearer token that clients send; a public address needs a token and
TLS.`

const serveExamples = `  rootsfs serve ~/code
  rootsfs serve --root code=~/code:ro
  rootsfs serve --root ~/code:ro --root out=~/out:rw --ask
  rootsfs serve --root .:rw --http :8931
  rootsfs serve --root ~/code:ro --http :8931 --oauth-issuer https://login.example --oauth-scope files
  rootsfs serve --session work
  rootsfs serve --session work --http :8931
  claude mcp add files -- rootsfs serve --root code=$HOME/code:ro`

func (a *app) newServeCmd() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:     "serve [flags] [SPEC]...",
		Short:   "Serve approved directories as MCP tools",
		Long:    serveLong,
		Example: serveExamples,
		Args:    argCount(0, -1, ""),
		RunE:    func(cmd *cobra.Command, specs []string) error { return a.serveMCP(cmd, f, specs) },
	}
	fs := cmd.Flags()
	f.addStart(cmd, "serve")
	fs.BoolVar(&f.ask, "ask", false, "ask about paths outside of the roots: the MCP host's user, over HTTP the owner")
	fs.StringVar(&f.clientRoots, "client-roots", "narrow", "`effect` of the client's own roots: narrow or ignore")
	hideFlags(fs, "client-roots")
	f.verbosity(fs, "every refusal")
	f.http.add(fs)
	a.jsonFlag(cmd)
	f.Add(cmd)
	a.sessionFlag(cmd)
	cmd.Flags().Lookup("session").Usage = "serve the roots of this live `session`, by name or mountpoint"
	fixedWords(cmd, "client-roots", "narrow", "ignore")
	allFlag(cmd)
	return cmd
}

// serveMCP runs `rootsfs serve`. specs are the roots that are named without --root.
func (a *app) serveMCP(cmd *cobra.Command, f *serveFlags, specs []string) error {
	if f.clientRoots != "narrow" && f.clientRoots != "ignore" {
		return usage(fmt.Errorf("--client-roots %s: write narrow or ignore", quoteIfNeeded(f.clientRoots)))
	}
	if len(specs) > 0 && cmd.Flags().Changed("root") {
		return usage(fmt.Errorf("--root and the root %s cannot be combined: write every root with --root, or none", quoteIfNeeded(specs[0])))
	}
	if len(specs) > 0 && cmd.Flags().Changed("session") {
		return usage(fmt.Errorf("--session and the root %s cannot be combined: --session serves the session's roots", quoteIfNeeded(specs[0])))
	}
	if cmd.Flags().Changed("session") {
		return a.share(cmd, f)
	}
	f.Roots = append(f.Roots, specs...)
	if err := f.http.check(); err != nil {
		return err
	}
	f.Cache, f.Locks, f.Posix = "audit", "local", "safe"
	opt, err := f.Options(cmd, "")
	if err != nil {
		return err
	}
	opt.Unmounted, opt.NameSource = true, "serve"
	opt.Flags, opt.StopReason = []string{"serve"}, "the host hung up, or a signal came"
	if len(opt.Roots) == 0 && !f.ask {
		return usage(errors.New("no root is approved; name one: rootsfs serve PATH"))
	}
	a.leaveOutMissing(&opt)
	deferCollection()
	bindSignal := revokeOnSignal()
	s, err := session.Start(cmd.Context(), opt)
	if err != nil {
		return err
	}
	bindSignal(s) // SIGUSR1 revokes the roots of s
	a.warnContinued(s)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(stop) }()
	err = a.converse(cmd.Context(), s, f)
	close(stop)
	err = errors.Join(err, <-ended)
	if isAnyStaged(opt.Roots) {
		a.warnStaged(cmd.Context(), s.Name())
	}
	return err
}

// leaveOutMissing leaves out, with a warning, the roots that do not exist and the directories that
// cannot be read: a drive may be unplugged. The MCP servers that `rootsfs serve` replaces do the
// same. If all roots are missing, none is left out, so the start fails and says why.
func (a *app) leaveOutMissing(opt *session.Options) {
	missing := map[string]error{} // by directory
	for i := range opt.Roots {
		g := &opt.Roots[i]
		info, err := os.Stat(g.Dir.Raw())
		if err == nil && info.IsDir() {
			err = unix.Access(g.Dir.Raw(), unix.R_OK)
		}
		if err != nil {
			missing[g.Dir.Raw()] = err
		}
	}
	if !slices.ContainsFunc(opt.Roots, func(g guard.Grant) bool { return missing[g.Dir.Raw()] == nil }) {
		return
	}
	opt.Roots = slices.DeleteFunc(opt.Roots, func(g guard.Grant) bool {
		err := missing[g.Dir.Raw()]
		if err != nil {
			a.warn("the root %s (%s) is left out: %s: %v; when it is there, start again", names.Quote(string(g.Root)), g.Origin, names.Quote(g.Dir), cause(err))
		}
		return err != nil
	})
}

// Bounds of the delayed garbage collection. Almost all memory of a call is free after the call. A
// collection after every few calls costs more than the calls themselves. (Measured: with the delay,
// reads of 1 MB and directory trees take half as long.)
const (
	garbagePercent = 400
	garbageLimit   = 512 << 20 // bytes of memory; close to this limit, Go collects more often
)

// deferCollection delays the garbage collection, unless the user's environment sets it.
func deferCollection() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(garbagePercent)
		debug.SetMemoryLimit(garbageLimit)
	}
}

// tools returns how the session must serve the tools.
func (f *serveFlags) tools() control.ToolsRequest {
	return control.ToolsRequest{Ask: f.ask, IgnoreRoots: f.clientRoots == "ignore"}
}

// share connects the MCP host to a live session until one of them ends. The session serves its own
// roots and keeps its own records, so share accepts no flags that approve roots.
func (a *app) share(cmd *cobra.Command, f *serveFlags) (err error) {
	accepted := []string{"session", "ask", "client-roots", "json"}
	network := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(httpFlags).add(network)
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if !slices.Contains(accepted, given.Name) && network.Lookup(given.Name) == nil && err == nil {
			err = usage(fmt.Errorf("--session and --%s cannot be combined: the session has its own roots, rules and log", given.Name))
		}
	})
	if err == nil {
		err = f.http.check()
	}
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(cmd.Context())
	defer cancel()
	if f.http.addr != "" {
		return a.shareHTTP(ctx, c, f)
	}
	stream, err := c.Tools(ctx, f.tools())
	if err != nil {
		return err
	}
	defer stream.Close()
	hungUp, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, _ = io.Copy(stream, a.Stdin)
		close(hungUp)
		_ = stream.CloseWrite() // calls in progress still get their answers
	}()
	go func() {
		_, err := io.Copy(a.Stdout, stream)
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		return nil // a signal
	}
	select {
	case <-hungUp:
		return err
	default:
		return fmt.Errorf("%w: %s has ended", control.ErrNoSession, quoteIfNeeded(c.Info().Name))
	}
}

// converse serves until the host hangs up, the session ends or a signal comes.
func (a *app) converse(ctx context.Context, s *session.Session, f *serveFlags) error {
	ctx, cancel := interruptible(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()
	if f.http.addr != "" {
		return a.serveHTTP(ctx, s, f)
	}
	if in, ok := a.Stdin.(*os.File); ok && isTerminal(in) {
		a.warn("waiting for an MCP host to speak on standard input, which is a terminal; see: rootsfs serve --help. Ctrl-C: the end")
	}
	t := s.NewTools(guard.Subject(s.Name()), f.tools())
	defer t.Close()
	return t.Run(ctx, io.NopCloser(a.Stdin), nopWriteCloser{a.Stdout})
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
