package revoke

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// daemon is the mode of a process that serves a mount until the test kills it.
type daemon struct {
	m *mount.Mount
}

type daemonArg struct {
	Source, Point string
	Level         mount.Level
	Stages        string // if set, the root is staged, and its changes lie in this directory
}

func (d *daemon) do(cmd string, arg json.RawMessage) (any, error) {
	if cmd != "mount" {
		return nil, fmt.Errorf("no command %q", cmd)
	}
	var a daemonArg
	if err := json.Unmarshal(arg, &a); err != nil {
		return nil, err
	}
	opener, rights := vfs.Opener(), guard.ReadWrite
	if a.Stages != "" {
		opener, rights = vfs.StagingOpener(a.Stages, "daemon"), guard.ReadWrite|guard.Stage
	}
	reg := guard.NewRegistry(guard.Config{Opener: opener})
	g := grantOf("code", a.Source, rights)
	g.Origin = "test"
	if _, err := reg.Grant(context.Background(), g); err != nil {
		return nil, err
	}
	m, err := mount.New(reg, mount.Options{Point: a.Point, Level: a.Level})
	d.m = m
	return nil, err
}
