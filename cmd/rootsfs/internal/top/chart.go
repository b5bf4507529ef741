package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// levels are the heights of a bar of a chart, the lowest for nothing at all.
var levels = []rune("▁▂▃▄▅▆▇█")

// minChart is the fewest places that make a chart worth its line.
const minChart = 8

// charts shows the speeds of the last minutes: operations, and bytes read and
// written, with the most there were. Nothing is shown of a session that did nothing.
func (m *model) charts(p *page, session string) {
	f := m.figures[session]
	text := func(what string, most float64, show func(float64) string, of func(control.Rate) float64, room int) string {
		return fmt.Sprintf("%s %s up to %s/s", what, chart(f.Total, of, room), show(most))
	}
	ops := func(r control.Rate) float64 { return r.Ops }
	bytes := func(r control.Rate) float64 { return r.Read + r.Written }
	mostOps, mostBytes := highest(f.Total, ops), highest(f.Total, bytes)
	// Both have a fixed part of some thirty places.
	room := (p.width - 60) / 2
	if mostOps == 0 || room < minChart {
		return
	}
	over := (time.Duration(len(f.Times)) * control.FiguresEvery).Truncate(time.Second)
	p.add(good, "  %s  %s  in %v", text("ops", mostOps, short, ops, min(room, 60)),
		text("bytes", mostBytes, func(v float64) string { return config.FormatSize(int64(v)) }, bytes, min(room, 60)), over)
}

func highest(list []control.Rate, of func(control.Rate) float64) float64 {
	most := 0.0
	for _, r := range list {
		most = max(most, of(r))
	}
	return most
}

// chart draws a list of speeds in a number of places, each the highest of its span.
func chart(list []control.Rate, of func(control.Rate) float64, places int) string {
	most := highest(list, of)
	places = min(places, len(list))
	var b strings.Builder
	for i := range places {
		span := list[i*len(list)/places : (i+1)*len(list)/places]
		level := 0
		if v := highest(span, of); v > 0 {
			level = 1 + int(v/most*float64(len(levels)-2))
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}
