package session

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Metrics implements control.Service. It makes a new Prometheus registry, which keeps out metrics
// that libraries register by themselves.
func (s *Session) Metrics() prometheus.Gatherer {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&metrics{s}, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: "rootsfs"}))
	return reg
}

// metrics collects the figures at each request.
type metrics struct{ s *Session }

// figure is one metric: a value of S.
type figure[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*S) float64
}

// counter returns a metric with one label, or with none for "".
func counter[S any](name, help, label string, of func(*S) int64) figure[S] {
	var labels []string
	if label != "" {
		labels = []string{label}
	}
	return figure[S]{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue, func(s *S) float64 { return float64(of(s)) }}
}

func gauge[S any](name, help, label string, of func(*S) int64) figure[S] {
	f := counter(name, help, label, of)
	f.kind = prometheus.GaugeValue
	return f
}

var (
	sessionInfo = prometheus.NewDesc("rootsfs_session_info", "The session, always 1.", []string{"session", "mountpoint", "version"}, nil)
	auditOK     = prometheus.NewDesc("rootsfs_audit_healthy", "1 if the last audit record could be written, otherwise 0.", nil, nil)
	questions   = prometheus.NewDesc("rootsfs_consent_waiting", "Questions that wait for rootsfs consent.", nil, nil)
	rootLive    = prometheus.NewDesc("rootsfs_root_live", "1 if the root is live, 0 if it is unavailable.", []string{"root"}, nil)
	rootFree    = prometheus.NewDesc("rootsfs_root_free_bytes", "Free space of the root's file system; missing where it is not known.", []string{"root"}, nil)

	rootFigures = []figure[guard.Status]{
		counter("rootsfs_root_operations_total", "Operations that were admitted.", "root", func(r *guard.Status) int64 { return r.Ops }),
		counter("rootsfs_root_refused_total", "Operations that were refused.", "root", func(r *guard.Status) int64 { return r.Refused }),
		counter("rootsfs_root_read_bytes_total", "Bytes read.", "root", func(r *guard.Status) int64 { return r.BytesRead }),
		counter("rootsfs_root_written_bytes_total", "Bytes written.", "root", func(r *guard.Status) int64 { return r.Written }),
		gauge("rootsfs_root_in_flight", "Operations in progress.", "root", func(r *guard.Status) int64 { return r.InFlight }),
	}
	netFigures = []figure[control.NetState]{
		gauge("rootsfs_network_connections", "Open connections of the command to approved hosts.", "", func(n *control.NetState) int64 { return int64(n.Open) }),
		counter("rootsfs_network_opened_total", "Connections that were made.", "", func(n *control.NetState) int64 { return n.Opened }),
		counter("rootsfs_network_refused_total", "Connections and look-ups of names that were refused.", "", func(n *control.NetState) int64 { return n.Refused }),
		counter("rootsfs_network_failed_total", "Connections that their host did not take.", "", func(n *control.NetState) int64 { return n.Failed }),
		counter("rootsfs_network_sent_bytes_total", "Bytes from the command.", "", func(n *control.NetState) int64 { return n.Sent }),
		counter("rootsfs_network_received_bytes_total", "Bytes to the command.", "", func(n *control.NetState) int64 { return n.Received }),
	}
	filesFigures = []figure[server]{
		gauge("rootsfs_files_sessions", "Connected servers.", "subject", func(v *server) int64 { return v.sessions }),
		counter("rootsfs_files_requests_total", "Requests of the connected servers.", "subject", func(v *server) int64 { return v.Requests }),
		counter("rootsfs_files_refused_total", "Requests that were refused.", "subject", func(v *server) int64 { return v.Refused }),
		counter("rootsfs_files_failed_total", "Requests that failed.", "subject", func(v *server) int64 { return v.Failed }),
		counter("rootsfs_files_read_bytes_total", "Bytes read by servers.", "subject", func(v *server) int64 { return v.Read }),
		counter("rootsfs_files_written_bytes_total", "Bytes written by servers.", "subject", func(v *server) int64 { return v.Written }),
		counter("rootsfs_files_notifications_total", "Notifications sent to servers.", "subject", func(v *server) int64 { return v.Notified }),
		gauge("rootsfs_files_in_flight", "Requests in progress.", "subject", func(v *server) int64 { return int64(v.InFlight) }),
		gauge("rootsfs_files_held_bytes", "Bytes held for requests in progress.", "subject", func(v *server) int64 { return v.HeldBytes }),
		gauge("rootsfs_files_watches", "Open watches.", "subject", func(v *server) int64 { return int64(v.Watches) }),
		gauge("rootsfs_files_uploads", "Uploads in progress.", "subject", func(v *server) int64 { return int64(v.Uploads) }),
	}
)

// server sums up the connections of one subject, because no two metrics may have the same labels.
type server struct {
	broker.Stats
	sessions int64
}

func (v *server) add(s *broker.Stats) {
	v.sessions++
	v.Requests += s.Requests
	v.Refused += s.Refused
	v.Failed += s.Failed
	v.Read += s.Read
	v.Written += s.Written
	v.Notified += s.Notified
	v.InFlight += s.InFlight
	v.HeldBytes += s.HeldBytes
	v.Watches += s.Watches
	v.Uploads += s.Uploads
}

// Describe implements prometheus.Collector. `rootsfs help metrics` is made from it.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sessionInfo, auditOK, questions, rootLive, rootFree} {
		ch <- d
	}
	for _, f := range rootFigures {
		ch <- f.desc
	}
	for _, f := range filesFigures {
		ch <- f.desc
	}
	for _, f := range netFigures {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := m.s
	set(sessionInfo, 1, s.dir.Name(), names.Escape(s.Point()), s.opt.Version)
	set(auditOK, boolValue(s.audit.healthy()))
	waiting, _ := s.consent.Waiting()
	set(questions, float64(len(waiting)))
	roots := s.reg.Roots()
	s.avail.AskFree(s.ctx, roots)
	for _, r := range roots {
		name := string(r.Grant.Root) // valid UTF-8: names.ParseRootName requires that
		set(rootLive, boolValue(r.State == guard.Live), name)
		if n := s.avail.Place(r.Epoch).Free; n != nil && r.State == guard.Live {
			set(rootFree, float64(*n), name)
		}
		for _, f := range rootFigures {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(&r), name)
		}
	}
	if s.opt.Network != nil {
		net := s.opt.Network.State()
		for _, f := range netFigures {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(&net))
		}
	}
	bySubject := map[string]*server{}
	for _, st := range brokerStats(s.broker) {
		subject := cmp.Or(names.Escape(st.Subject), "none")
		if bySubject[subject] == nil {
			bySubject[subject] = &server{}
		}
		bySubject[subject].add(&st)
	}
	for subject, v := range bySubject {
		for _, f := range filesFigures {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(v), subject)
		}
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
