package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/names"
)

// The commands of a fleet are defined here, for the help, the manual and the completion of
// rootsfs. A separate program, rootsfs-fleet, does the work of these commands. rootsfs-fleet
// contains the server and the client of the fleet's message bus (NATS). rootsfs contains neither.

const fleetLong = `Manage the machines of one person or team together: see which answer, and let machines
join and leave. One machine runs the server; the others join by an invite.

These commands are the program rootsfs-fleet, which has its own package.`

const fleetExamples = `  rootsfs fleet init acme
  rootsfs fleet serve
  rootsfs fleet invite laptop
  rootsfs fleet machines`

// FleetFlags are the flags of the commands of a fleet.
type FleetFlags struct {
	Dir, Server, Listen  string
	Lease, Expires, Wait time.Duration
	Watch, Verbose       bool
	Offline              bool
	OCSF, OTLP, Cursor   string
	NATS, Creds          string

	// The flags of orders to machines.
	Machines               []string
	Session, Subject, Lock string
	Net, All               bool
}

// FleetWork has the functions that do the work of the commands of a fleet, by the commands' names.
// The names of commands in the groups ceiling, keeper and owner begin with the group's name.
type FleetWork map[string]func(ctx context.Context, p *Printer, f *FleetFlags, args []string) error

// FleetMain executes a command line of the program rootsfs-fleet. It returns the exit code.
func FleetMain(args []string, io Stdio, work FleetWork) int {
	if len(args) == 0 || args[0] != "fleet" {
		args = append([]string{"fleet"}, args...)
	}
	a := newApp(args, io)
	a.fleet = work
	return a.main()
}

// Printer prints the results of a command: see output.go for the rules.
type Printer struct{ a *app }

// Say prints a line for people.
func (p *Printer) Say(format string, args ...any) { p.a.say(format, args...) }

// Warn prints a line on standard error.
func (p *Printer) Warn(format string, args ...any) { p.a.warn(format, args...) }

// Report prints v as JSON with --json, and otherwise calls human.
func (p *Printer) Report(v any, human func()) error { return p.a.report(v, human) }

// Line is Report for one value of a stream.
func (p *Printer) Line(v any, human func()) error { return p.a.lineOr(v, human) }

// Table prints aligned columns; the first row is the heading.
func (p *Printer) Table(rows [][]string) { p.a.table(rows) }

// Waiting prints on a terminal what the command waits for: after one second, and then every ten
// seconds, until done is called.
func (p *Printer) Waiting(what string) (done func()) { return p.a.waiting(what) }

// Stdin returns the first line of standard input. It reads at most maxBytes bytes of the line.
func (p *Printer) Stdin(maxBytes int64) (string, error) { return readLine(p.a.Stdin, maxBytes) }

// Log returns a log on standard error.
func (p *Printer) Log(verbose bool) *slog.Logger {
	level, attr := slog.LevelInfo, logAttr
	if verbose {
		level = slog.LevelDebug
	}
	if logsToJournal() {
		attr = dropTime
	}
	return newLog(p.a.Stderr, level, attr)
}

// Version returns the version of this program.
func (p *Printer) Version() string { return programVersion() }

// Failed returns an error for which nothing more is printed.
func Failed() error { return &exitError{Code: exitFailure} }

// FailedWith is Failed with the exit code of another command. A code below 0 means that a signal
// ended that command. The exit code is then that of Failed.
func FailedWith(code int) error {
	if code < 0 {
		code = exitFailure
	}
	return &exitError{Code: code}
}

// OwnRootsfs returns the path of the program rootsfs that is installed with this program.
func OwnRootsfs() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return findBeside(self, "rootsfs", "bin")
}

// Usage marks an error as a usage error.
func Usage(err error) error { return usage(err) }

// Until returns a context that ends at the first signal that asks the program to end.
func Until(ctx context.Context) (context.Context, context.CancelFunc) { return interruptible(ctx) }

func (a *app) newFleetCmd() *cobra.Command {
	f := &FleetFlags{}
	return group(&cobra.Command{
		Use:     "fleet",
		Short:   "See and stop the machines of a person or team",
		Long:    fleetLong,
		Example: fleetExamples,
	}, a.newFleetInitCmd(f), a.newFleetServeCmd(f), a.newFleetInviteCmd(f), a.newFleetRemoveCmd(f), a.newFleetMachinesCmd(f),
		a.newFleetRevokeCmd(f), a.newFleetLockCmd(f), a.newFleetUnlockCmd(f),
		a.newFleetJoinCmd(f), a.newFleetAgentCmd(f), a.newFleetLeaveCmd(f), a.newFleetAuditCmd(f), a.newFleetWithCmd(f), a.newFleetCeilingCmd(f),
		a.newFleetCharterCmd(f), a.newFleetKeeperCmd(f), a.newFleetOwnerCmd(f))
}

// fleetCommand adds the flag --json to a command of a fleet, and gives the command its work: see
// fleetWork.
func (a *app) fleetCommand(cmd *cobra.Command, f *FleetFlags) *cobra.Command {
	a.jsonFlag(cmd)
	return a.fleetWork(cmd, f, cmd.Name())
}

// fleetWork gives a command its work. In rootsfs-fleet, the command calls the function that
// FleetWork has for name. In rootsfs, the command replaces the process by rootsfs-fleet.
func (a *app) fleetWork(cmd *cobra.Command, f *FleetFlags, name string) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.fleet == nil {
			return a.execFleet()
		}
		return a.fleet[name](cmd.Context(), &Printer{a}, f, args)
	}
	return cmd
}

// checkWait returns a function that refuses a --wait of 0 or less.
func checkWait(f *FleetFlags) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		if f.Wait <= 0 {
			return usage(errors.New("--wait: write a duration above 0, such as 5s"))
		}
		return nil
	}
}

// fleetProgram is the name of the program that does the work of the commands of a fleet.
const fleetProgram = "rootsfs-fleet"

// execFleet replaces this process by rootsfs-fleet.
func (a *app) execFleet() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := findFleet(self)
	if err != nil {
		return err
	}
	err = unix.Exec(program, append([]string{fleetProgram}, a.Args...), os.Environ())
	return &exitError{Code: ExitSystem, Err: fmt.Errorf("%s cannot be executed: %w", names.Quote(program), err)}
}

// findFleet finds rootsfs-fleet.
func findFleet(self string) (string, error) { return findBeside(self, fleetProgram, "libexec") }

// findBeside finds a program in the directory of the file self, or in the directory other beside
// that directory. It does not look in PATH, which a project may have set. It refuses a program that
// a confined program could have changed.
func findBeside(self, program, other string) (string, error) {
	dir := filepath.Dir(self)
	places := []string{filepath.Join(dir, program), filepath.Join(filepath.Dir(dir), other, program)}
	for _, place := range places {
		if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return writabledirs.NewJudge().Program(place)
	}
	return "", &exitError{Code: ExitSystem, Err: fmt.Errorf("%s is not installed: it is neither %s nor %s; install the package %[1]s", program, names.Quote(places[0]), names.Quote(places[1]))}
}
