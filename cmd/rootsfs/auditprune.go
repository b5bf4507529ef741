package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

const day = 24 * time.Hour

// auditBounds are the bounds of all sessions' audit files that a configuration asks
// for, or the defaults.
func auditBounds(conf *config.Config) (age time.Duration, total int64) {
	age, total = audit.DefaultMaxAge, audit.DefaultMaxTotal
	if n := conf.Mount.AuditMaxDays; n != nil {
		age = time.Duration(*n) * day
	}
	if n := conf.Mount.AuditMaxSize; n != nil {
		total = *n
	}
	return age, total
}

func newAuditPruneCmd(a *app) *cobra.Command {
	var age, total string
	dry := false
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete old audit files of sessions that have ended",
		Long: `Delete audit files of sessions that have ended: those that are older than
--older-than, and, while all files together exceed --max-size, the oldest of the
largest session. Without either flag, the bounds of the configuration hold (2G and
90 days by default), which sessions apply by themselves.

Files of live sessions are never deleted. "audit verify" says what is gone.`,
		Example: `  rootsfs audit prune --dry-run
  rootsfs audit prune --older-than 30d
  rootsfs audit prune --max-size 1G --json`,
		Args: nargs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			o, err := pruneOptions(age, total)
			if err != nil {
				return err
			}
			o.DryRun = dry
			return a.auditPrune(o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&age, "older-than", "", "files whose last record is older than this `age`: 30d, 12h")
	fs.StringVar(&total, "max-size", "", "the oldest files, until all together are within this `size`: 1G, 500M")
	fs.BoolVar(&dry, "dry-run", false, "say what would be deleted, and delete nothing")
	jsonFlag(a, cmd)
	return cmd
}

// pruneOptions reads the flags; without either, the configuration's bounds apply.
func pruneOptions(age, total string) (o audit.PruneOptions, err error) {
	if o.Dir, err = config.AuditDir(); err != nil {
		return o, err
	}
	o.Anchor = config.AnchorPath
	if age == "" && total == "" {
		path, err := config.DefaultPath()
		if err != nil {
			return o, err
		}
		conf, err := config.LoadIfPresent(path)
		if err != nil {
			return o, badConfig(path, err)
		}
		o.MaxAge, o.MaxTotal = auditBounds(conf)
		return o, nil
	}
	if age != "" {
		if o.MaxAge, err = parseAge(age); err != nil {
			return o, usage(fmt.Errorf("--older-than %s: %w", names.Quote(age), err))
		}
	}
	if o.MaxTotal, err = parseSize(total); err != nil {
		return o, usage(fmt.Errorf("--max-size %s: %w", names.Quote(total), err))
	}
	return o, nil
}

// parseAge reads a duration above 0, also one in days.
func parseAge(s string) (time.Duration, error) {
	const form = "write an age above 0 such as 30d, 12h or 45m"
	if text, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.Atoi(text)
		if err != nil || days < 1 || days > config.MaxAuditDays {
			return 0, fmt.Errorf(form+"; at most %d days", config.MaxAuditDays)
		}
		return time.Duration(days) * day, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errors.New(form)
	}
	return d, nil
}

func (a *app) auditPrune(o audit.PruneOptions) error {
	r, err := audit.Prune(o)
	if err != nil {
		return err
	}
	return a.report(r, func() {
		verb := "deleted"
		if o.DryRun {
			verb = "would delete"
		}
		for _, f := range r.Files {
			a.say("%s %s  %s, last record %s", verb, names.Escape(f.File), size(f.Bytes), f.Time.Local().Format("2006-01-02 15:04"))
		}
		a.say("%s %s, %s; left: %s, of which %s of live sessions", verb, plural(len(r.Files), "file"), size(r.Bytes), size(r.Left), size(r.Live))
	})
}
