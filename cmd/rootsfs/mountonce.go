package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// ofTheSession are the flags of mount that say something of a whole session, so
// nothing of one more mount of a live one.
var ofTheSession = []string{
	"config", "profile", "name", "locks", "wakeups", "transport", "posix", "audit-paths", "daemon", "verbose", "debug",
	"abuse-escapes", "abuse-refusals", "abuse-suspend",
}

// mountOnce mounts a live session once more, for one server.
func (a *app) mountOnce(cmd *cobra.Command, f *mountFlags, point string) error {
	if f.subject == "" {
		return usage(errors.New("--session mounts a live session for one server: name it with --subject"))
	}
	var wrong []string
	where := ""
	cmd.Flags().Visit(func(given *pflag.Flag) {
		for _, name := range ofTheSession {
			if given.Name == name {
				wrong, where = append(wrong, "--"+name), cmp.Or(where, f.abuse.elsewhere(name))
			}
		}
	})
	if len(wrong) > 0 {
		return usage(fmt.Errorf("%s cannot be combined with --session: it only applies when a session starts%s", strings.Join(wrong, ", "), where))
	}
	grants, err := f.all(f.roots, "command line")
	if err != nil {
		return err
	}
	list := asks(grants)
	for i := range list {
		list[i].AllowSystem, list[i].AllowRootDir = f.allowSystem, f.allowTop
	}
	req := control.MountRequest{Subject: f.subject, ReadOnly: f.readOnly, AllowOther: f.allowOther, Roots: list}
	if req.Point, err = filepath.Abs(point); err != nil {
		return err
	}
	if cmd.Flags().Changed("cache") {
		req.Cache = f.cache
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(cmd.Context())
	defer cancel()
	done := a.waiting("mounting")
	ans, err := c.Mount(ctx, req)
	done()
	if err != nil {
		return err
	}
	return a.report(ans, func() {
		a.say("mounted at %s for %s; %s granted", shown(ans.Point), shown(ans.Subject), plural(len(ans.Roots), "root"))
	})
}
