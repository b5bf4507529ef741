package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// Config configures Serve.
type Config struct {
	Roots   []Root
	Command []string // the server
	// Control is the path of a unix socket on which Serve listens for lines that change
	// the roots: "grant NAME MODE DIR" and "revoke NAME", each answered by "ok" or an
	// error. Empty: no socket.
	Control string
	// AllowAll answers yes to every question that the host does not answer.
	AllowAll bool
}

// Root is a directory to be granted under a name.
type Root struct{ Name, Mode, Dir string }

// Serve runs a server behind a proxy on this process's standard streams, until
// the server has ended. The server's standard error is this process's own.
func Serve(ctx context.Context, cfg Config) (err error) {
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	for _, r := range cfg.Roots {
		if err := grant(ctx, reg, r); err != nil {
			return err
		}
	}
	defer func() {
		_, rerr := reg.RevokeAll(context.Background())
		err = errors.Join(err, rerr)
	}()
	asker := broker.AskHost
	if cfg.AllowAll {
		asker = broker.Chain(broker.AskHost, broker.AskerFunc(allow))
	}
	b := broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg), Asker: asker})
	defer b.Close()
	if cfg.Control != "" {
		l, err := net.Listen("unix", cfg.Control)
		if err != nil {
			return err
		}
		defer l.Close()
		go control(ctx, l, reg)
	}
	return run(ctx, b.Session("server"), cfg.Command)
}

func allow(_ context.Context, q *broker.Question) (broker.Answer, error) {
	a := broker.Answer{By: "test", Decisions: make([]broker.Decision, len(q.Items))}
	for i := range a.Decisions {
		a.Decisions[i].Allow = true
	}
	return a, nil
}

// run starts the server and forwards messages until the server has ended.
func run(ctx context.Context, s *broker.Session, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	inR, in, err := os.Pipe()
	if err != nil {
		return err
	}
	out, outW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, inR.Close(), in.Close())
	}
	cmd.Stdin, cmd.Stdout = inR, outW
	err = cmd.Start()
	if err = errors.Join(err, inR.Close(), outW.Close()); err != nil {
		return errors.Join(err, in.Close(), out.Close())
	}
	gone, waitErr := make(chan struct{}), error(nil)
	go func() {
		waitErr = cmd.Wait()
		close(gone)
	}()
	err = proxy.Run(ctx, proxy.Options{
		Host: proxy.Stdin(), HostOut: os.Stdout, Server: in, ServerOut: out, Session: s, Mode: proxy.Auto, Gone: gone,
	})
	<-gone
	return errors.Join(err, waitErr)
}

func grant(ctx context.Context, reg *guard.Registry, r Root) error {
	rights, err := rules.ParseMode(r.Mode)
	if err == nil {
		_, err = reg.Grant(ctx, guard.Grant{Root: guard.RootName(r.Name), Dir: names.Foreign(r.Dir), Origin: "test", Policy: guard.Policy{Rights: rights}})
	}
	return err
}

// control accepts connections until the listener is closed. Each line of a connection changes the
// roots (see Config.Control).
func control(ctx context.Context, l net.Listener, reg *guard.Registry) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				answer := "ok"
				if err := obey(ctx, reg, strings.SplitN(lines.Text(), " ", 4)); err != nil {
					answer = err.Error()
				}
				fmt.Fprintln(c, answer)
			}
		}()
	}
}

func obey(ctx context.Context, reg *guard.Registry, words []string) error {
	switch {
	case len(words) == 4 && words[0] == "grant":
		return grant(ctx, reg, Root{words[1], words[2], words[3]})
	case len(words) == 2 && words[0] == "revoke":
		_, err := reg.Revoke(ctx, guard.RootName(words[1]))
		return err
	}
	return fmt.Errorf("not understood: %q", words)
}
