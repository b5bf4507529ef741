package runcmd

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// errUnread ends a conversation in which nobody listens.
var errUnread = errors.New("nobody has read what the command wrote before it was ended")

// unread calls leave when what the command wrote is not waited for any more: it was
// asked to end and has, and whoever asked has had time to read the rest.
func (r *runner) unread(leave func(), done <-chan struct{}) {
	for _, c := range []<-chan struct{}{r.termRequested, r.proc.Ended()} {
		select {
		case <-c:
		case <-done:
			return
		}
	}
	limit := time.NewTimer(stopAfter)
	defer limit.Stop()
	select {
	case <-r.killRequested:
	case <-limit.C:
	case <-done:
		return
	}
	leave()
}

// runProxy carries what the command and its host say to each other until the
// command has ended.
func (r *runner) runProxy(ctx context.Context) (exit sandbox.Exit, err error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go r.unread(func() {
		r.proc.Leave()
		giveUp(errUnread)
	}, ctx.Done())
	if r.plan.mcp == proxy.Off {
		r.drain()
		return r.proc.Wait()
	}
	defer r.drain()
	gone := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		exit, err = r.proc.Wait()
		close(gone)
	})
	subject := guard.Subject(r.s.Name())
	broken := proxy.Run(ctx, proxy.Options{
		Host: proxy.Stdin(), HostOut: os.Stdout, Server: r.proc.Stdin(), ServerOut: r.proc.Stdout(),
		Session: r.s.Broker().Session(subject), Frame: r.s.Frame(), Mode: r.plan.mcp, Gone: gone, Drained: r.drain, Log: r.s.Log(),
	})
	if broken != nil && !errors.Is(broken, errUnread) { // who would read that?
		r.a.Warn("the conversation broke off: %s", names.Escape(broken.Error()))
		_ = r.proc.Signal(unix.SIGTERM)
	}
	wg.Wait()
	return exit, err
}
