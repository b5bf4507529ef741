package fleetcli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/guard/names"
)

// withCommands are the commands of rootsfs that only talk to sessions.
var withCommands = []string{"console", "top", "status", "roots", "net", "consent", "why", "allow", "policy", "metrics", "revoke", "pause", "resume", "unmount"}

// with runs a command that reaches the live sessions of the machines in args[0], and no other
// sessions.
func with(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	argv, err := withCommand(args[1:])
	if err != nil {
		return err
	}
	o, err := fleet.OpenOwner()
	if err != nil {
		return err
	}
	defer o.Close()
	remotes, err := o.Remotes(ctx, strings.Split(args[0], ","), f.Wait)
	if err != nil {
		return err
	}
	log := p.Log(f.Verbose)
	done := p.Waiting("waiting for machines")
	b, err := fleet.NewBridge(ctx, remotes, log)
	done()
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() { b.Follow(ctx); close(followed) }()
	defer func() { cancel(); <-followed }()
	return runChild(argv)
}

// withCommand returns the command to run. Its program is the rootsfs beside this program.
func withCommand(words []string) ([]string, error) {
	if len(words) == 0 {
		words = []string{"rootsfs", "console"}
	}
	if len(words) < 2 || words[0] != "rootsfs" || !slices.Contains(withCommands, words[1]) {
		return nil, cli.Usage(fmt.Errorf("only commands for live sessions run with a machine: rootsfs %s", strings.Join(withCommands, ", ")))
	}
	if words[1] != "consent" && slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "--save") }) {
		return nil, cli.Usage(errors.New("--save would write the configuration of this machine; leave it out"))
	}
	program, err := cli.OwnRootsfs()
	return append([]string{program}, words[1:]...), err
}

// runChild runs a command to its end. It returns an exit code other than 0 as an error. It passes
// SIGTERM and SIGHUP on to the command. It does not pass on SIGINT and SIGQUIT: the terminal sends
// them to the command, too, and the command decides whether to end.
func runChild(argv []string) error {
	caught := make(chan os.Signal, 4)
	signal.Notify(caught, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(caught)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s cannot be started: %w", names.Quote(argv[0]), err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-caught:
			if sig != unix.SIGINT && sig != unix.SIGQUIT {
				_ = cmd.Process.Signal(sig) // it may have ended
			}
			continue
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return cli.FailedWith(exit.ExitCode())
			}
			return err
		}
	}
}
