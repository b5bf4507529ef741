package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// grantedSocket is a socket of the host that --socket or run.socket names.
type grantedSocket struct {
	name string
	// writtenPath is the path as written, which may also be the value of environment variables.
	// resolved is that path without links.
	writtenPath, resolved string
}

// grantSockets grants the sockets of --socket and of the configuration.
func (f *runFlags) grantSockets(p *runPlan) error {
	for _, text := range f.sockets {
		if err := p.addSocket(text); err != nil {
			return err
		}
	}
	for _, path := range p.session.Config.Run.Sockets {
		if slices.ContainsFunc(p.sockets, func(one grantedSocket) bool { return one.writtenPath == path }) {
			continue
		}
		if err := p.addSocket(path); err != nil {
			return fmt.Errorf("run.socket of %s: %w", names.Quote(p.session.Config.Path), err)
		}
	}
	return nil
}

// parseSocket reads [NAME=]PATH. In the result, the field resolved is an absolute path that may
// still pass links: addSocket follows the links.
func parseSocket(text string) (grantedSocket, error) {
	one := grantedSocket{writtenPath: text}
	if name, path, ok := strings.Cut(text, "="); ok && !strings.Contains(name, "/") {
		one.name, one.writtenPath = name, path
		if _, err := names.ParseRootName(name); err != nil {
			return one, usage(fmt.Errorf("--socket %s: %w", names.Quote(text), err))
		}
	}
	if one.writtenPath == "" {
		return one, usage(errors.New("--socket is empty: set the variable that holds the path"))
	}
	path, err := expandHome(one.writtenPath)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return one, usage(fmt.Errorf("--socket %s: %w", names.Quote(text), err))
	}
	if one.name == "" {
		name, err := rootspec.DefaultName(path)
		if err != nil {
			return one, usage(fmt.Errorf("--socket %s: %w; write NAME=PATH", names.Quote(text), err))
		}
		one.name = string(name)
	}
	one.resolved = path
	return one, nil
}

// addSocket grants one socket, [NAME=]PATH. If the path passes a link that others can change,
// it asks on the terminal, as for roots, and refuses the socket without a terminal.
func (p *runPlan) addSocket(text string) error {
	one, err := parseSocket(text)
	if err != nil {
		return err
	}
	var link *rules.LinkError
	resolved, err := writabledirs.Resolve(one.resolved)
	if errors.As(err, &link) && isTerminal(os.Stdin) {
		if err := askLink(link, fmt.Sprintf("Let the command connect to %s?", names.Quote(link.Resolved))); err != nil {
			return err
		}
		resolved, err = link.Resolved, nil
	}
	if link != nil && err != nil {
		return &control.Error{Class: control.NotApproved, Text: "the socket is refused: " + err.Error()}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage(fmt.Errorf("--socket %s: %s does not exist; check the spelling, or start the program that serves it", names.Quote(one.writtenPath), names.Quote(one.resolved)))
	case err != nil:
		return usage(fmt.Errorf("--socket %s: %w", names.Quote(one.writtenPath), err))
	}
	if err := p.session.Ceiling.CheckPath(resolved, guard.ReadWrite); err != nil {
		return session.CeilingError(fmt.Errorf("the socket is refused: %w", err))
	}
	keeps, err := session.ReservedPaths("", nil)
	if err != nil {
		return err
	}
	for _, k := range keeps {
		if names.Under(resolved, k.Path) {
			return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf("the socket %s lies in %s of rootsfs, which no command may reach; choose another one", names.Quote(resolved), k.What)}
		}
	}
	if slices.ContainsFunc(p.session.Roots, func(g guard.Grant) bool { return string(g.Root) == one.name }) {
		return usage(fmt.Errorf("--socket %s: a root is called %s; write NAME=PATH to give the socket another name", names.Quote(one.writtenPath), names.Quote(one.name)))
	}
	if p.box.Sockets == nil {
		p.box.Sockets = &sandbox.Sockets{}
		p.session.Sockets = p.box.Sockets
	}
	one.resolved = resolved
	p.sockets = append(p.sockets, one)
	if err := p.box.Sockets.Add(one.name, resolved); err != nil {
		return usage(err)
	}
	return nil
}

// socketEnv returns env with the path of each granted socket replaced by the path at which the
// command finds the socket. It adds the caller's variables whose value is such a path.
func (p *runPlan) socketEnv(env []string) []string {
	for _, one := range p.sockets {
		for _, list := range [][]string{env, os.Environ()} {
			for _, e := range list {
				name, value, _ := strings.Cut(e, "=")
				if value == one.writtenPath || value == one.resolved {
					env = slices.DeleteFunc(slices.Clone(env), func(o string) bool { return strings.HasPrefix(o, name+"=") })
					env = append(env, name+"="+sandbox.SocketPath(one.name))
				}
			}
		}
	}
	return env
}

// recordSockets records the granted sockets, before the command is started.
func (r *runner) recordSockets() error {
	for _, one := range r.plan.sockets {
		detail := fmt.Sprintf("socket %s: %s", one.name, one.resolved)
		if err := r.reg.Note(names.OpGrant, "", guard.Allowed, detail); err != nil {
			return fmt.Errorf("nothing was started: a granted socket cannot be recorded: %w", err)
		}
	}
	return nil
}
