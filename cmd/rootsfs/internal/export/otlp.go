package export

import (
	"context"
	"fmt"
	"net/url"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"
)

// Collector is a Sink that sends log records to a collector of OpenTelemetry, by OTLP over HTTP.
// The body of a log record is the audit record as it was written, or the text about a hole.
type Collector struct {
	exporter *otlploghttp.Exporter
	provider *sdklog.LoggerProvider
	emitted  recordBuffer
}

// NewCollector returns a sink for the collector at a URL, such as http://localhost:4318. Headers,
// certificates and the like are taken from the environment variables of OpenTelemetry
// (OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE).
func NewCollector(ctx context.Context, address string) (*Collector, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no address of a collector: write http://HOST:4318 or https://HOST:4318", address)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/logs"
	}
	c := &Collector{}
	if c.exporter, err = otlploghttp.New(ctx, otlploghttp.WithEndpointURL(u.String())); err != nil {
		return nil, err
	}
	c.provider = sdklog.NewLoggerProvider(
		sdklog.WithProcessor(&c.emitted),
		sdklog.WithResource(sdkresource.NewSchemaless(attribute.String("service.name", "rootsfs"))),
	)
	return c, nil
}

// Send implements Sink. The exporter itself tries again while the collector is busy.
func (c *Collector) Send(ctx context.Context, items []Item) error {
	c.emitted.records = nil
	logger := c.provider.Logger("github.com/rootsfs/rootsfs")
	for i := range items {
		logger.Emit(ctx, logRecord(&items[i]))
	}
	return c.exporter.Export(ctx, c.emitted.records)
}

// Close implements Sink.
func (c *Collector) Close() error { return c.exporter.Shutdown(context.Background()) }

// logRecord returns an item as a log record.
func logRecord(i *Item) (r log.Record) {
	e := &i.Entry
	r.SetTimestamp(e.Time)
	r.SetSeverity(log.SeverityInfo)
	r.SetEventName("rootsfs." + e.Op.Raw())
	r.SetBody(attribute.StringValue(string(e.Line)))
	if e.Verdict.Raw() == "refused" {
		r.SetSeverity(log.SeverityWarn)
	}
	if h := i.Hole; h != nil {
		f := holeEvent(i).Finding
		r.SetEventName("rootsfs.hole")
		r.SetBody(attribute.StringValue(f.Title + ": " + f.Desc))
		r.AddAttributes(attribute.Int64("rootsfs.hole.from", int64(h.From)), attribute.Int64("rootsfs.hole.to", int64(h.To)), attribute.Bool("rootsfs.hole.tampering", h.Tampering))
		if h.Tampering {
			r.SetSeverity(log.SeverityError)
		}
	}
	r.AddAttributes(attribute.String("rootsfs.session", e.Session.Raw()), attribute.Int64("rootsfs.seq", int64(e.Seq)))
	for _, a := range []struct{ key, value string }{
		{"host.name", i.Machine}, {"rootsfs.subject", e.Subject.Raw()}, {"rootsfs.op", e.Op.Raw()}, {"rootsfs.verdict", e.Verdict.Raw()},
		{"rootsfs.root", e.Root.Raw()}, {"file.path", e.Path.Raw()}, {"rootsfs.errno", e.Errno.Raw()}, {"server.address", e.Host.Raw()},
	} {
		if a.value != "" {
			r.AddAttributes(attribute.String(a.key, a.value))
		}
	}
	return r
}

// recordBuffer is a processor that keeps the emitted records, for Send to export. The processors of
// the SDK do not report whether the receiver has taken a record.
type recordBuffer struct{ records []sdklog.Record }

func (g *recordBuffer) OnEmit(_ context.Context, r *sdklog.Record) error {
	g.records = append(g.records, r.Clone())
	return nil
}

func (g *recordBuffer) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (g *recordBuffer) Shutdown(context.Context) error                         { return nil }
func (g *recordBuffer) ForceFlush(context.Context) error                       { return nil }
