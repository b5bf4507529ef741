package fleetcli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxToken bounds the line that join reads.
const maxToken = 64 << 10

// membership is the output of join, agent and leave.
type membership struct {
	Fleet   string `json:"fleet"`
	Machine string `json:"machine"`
	Key     string `json:"key,omitempty"`
	Told    *bool  `json:"told,omitempty"` // set by leave: whether a keeper has confirmed it
}

func join(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	var creds *fleet.Creds
	var token string
	var err error
	if f.Creds != "" {
		if creds, err = fleet.ReadCreds(f.Creds); err != nil {
			return err
		}
	}
	if len(args) > 0 {
		token = args[0]
	} else if token, err = p.Stdin(maxToken); err != nil && !errors.Is(err, io.EOF) {
		return cli.Usage(err)
	}
	m, err := fleet.Join(ctx, token, creds)
	if err != nil {
		return err
	}
	return p.Report(membership{Fleet: m.Fleet, Machine: m.Machine, Key: m.KeyName()}, func() {
		p.Say("joined %s as %s; the key is %s", m.Fleet, m.Machine, m.KeyName())
		p.Say("sessions begin only while its agent runs; start it: systemctl --user enable --now rootsfs-fleet, or: rootsfs fleet agent")
	})
}

func leave(ctx context.Context, p *cli.Printer, _ *cli.FleetFlags, _ []string) error {
	m, err := fleet.OpenMember()
	if err != nil {
		return err
	}
	isConfirmed, err := m.Leave(ctx)
	if err != nil {
		return err
	}
	return p.Report(membership{Fleet: m.Fleet, Machine: m.Machine, Told: &isConfirmed}, func() {
		p.Say("this machine has left %s", m.Fleet)
		if !isConfirmed {
			p.Say("the fleet could not be told; there: rootsfs fleet remove %s", names.ShellWord(m.Machine))
		}
	})
}

func agent(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, _ []string) error {
	m, err := fleet.OpenMember()
	if err != nil {
		return err
	}
	ctx, stop := cli.Until(ctx)
	defer stop()
	log := p.Log(f.Verbose)
	records, err := auditOptions(log)
	if err != nil {
		return err
	}
	host := fleet.Host{
		Status: func() fleet.MachineStatus { return status(ctx, p.Version()) },
		Allows: func() []control.Access { return allowedActs(log) },
		Shares: sharesRecords,
	}
	return m.RunAgent(ctx, log, records, host, func() error {
		return p.Line(membership{Fleet: m.Fleet, Machine: m.Machine}, func() { p.Say("%s: the agent of %s runs", m.Machine, m.Fleet) })
	})
}

// auditOptions returns the options of the agent's audit log, which is beside those of the sessions. Its
// records name no files, so the setting audit_paths does not matter.
func auditOptions(log *slog.Logger) (audit.Options, error) {
	dir, err := config.AuditDir()
	if err != nil {
		return audit.Options{}, err
	}
	anchor, err := config.AnchorPath(fleet.RecordsSession)
	if err != nil {
		return audit.Options{}, err
	}
	bounds := func() (time.Duration, int64) { return recordBounds(log) }
	o := audit.Options{Dir: dir, Session: fleet.RecordsSession, Anchor: anchor, AnchorOf: config.AnchorPath, Bounds: bounds}
	o.MaxAge, o.MaxTotal = bounds()
	return o, nil
}

// recordBounds returns the bounds of audit files by the present configuration and ceiling.
func recordBounds(log *slog.Logger) (age time.Duration, total int64) {
	conf, _, err := config.LoadFlag("")
	if err == nil {
		var ceiling *config.Ceiling
		if ceiling, err = config.LoadCeiling(); err == nil {
			return session.AuditBounds(conf, ceiling)
		}
	}
	// An agent that does not run would be worse than records that are kept too long.
	log.Warn("the bounds of the records cannot be read: none are deleted", "error", err)
	return 0, 0
}

// allowedActs returns the acts that the configuration allows the owners of the fleet now, and none if
// the configuration cannot be read.
func allowedActs(log *slog.Logger) (list []control.Access) {
	conf, _, err := config.LoadFlag("")
	if err != nil {
		log.Warn("the configuration cannot be read: owners of the fleet may look and stop, and no more", "error", err)
		return nil
	}
	for _, word := range conf.FleetAllows {
		list = append(list, control.Access(word))
	}
	return list
}

// sharesRecords reports whether the configuration lets the fleet have the audit records, and false if
// the configuration cannot be read.
func sharesRecords() bool {
	conf, _, err := config.LoadFlag("")
	return err == nil && !conf.RecordsStay
}

// sessionTime bounds how long a session may take to answer with its status.
const sessionTime = time.Second

// status returns this machine's status.
func status(ctx context.Context, version string) fleet.MachineStatus {
	st := fleet.MachineStatus{Version: names.Foreign(version), Sessions: []fleet.SessionStatus{}}
	all, err := control.List()
	if err != nil {
		return st
	}
	for _, in := range all {
		one := fleet.SessionStatus{Name: names.Foreign(in.Name)}
		ctx, cancel := context.WithTimeout(ctx, sessionTime)
		if got, err := control.GetStatus.Call(ctx, control.Dial(in), control.None{}); err == nil {
			one.Roots, one.Questions, one.Paused = len(got.Roots), got.Questions, len(got.Paused) > 0
		}
		cancel()
		st.Sessions = append(st.Sessions, one)
	}
	return st
}
