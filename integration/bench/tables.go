package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// markdown returns the report as tables for people.
func (r *report) markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "Slowdown against native, lower is better; medians of %d, size %s, %s.\n", r.Repetitions, r.Size.Name,
		r.When.Format("2006-01-02"))
	fmt.Fprintf(&b, "Kernel %s, %d CPUs, %s, go-fuse %s, %s.\n", m.Kernel, m.CPUs, m.Go, m.GoFuse, orNoBindfs(m.Bindfs))
	if m.busy() {
		fmt.Fprintf(&b, "\nOTHERS WERE USING THIS MACHINE: its load average was %.1f at the start, for %d CPUs. Only the counts of requests can be relied on.\n",
			m.Load, m.CPUs)
	}
	if len(r.Rows) > 0 {
		b.WriteString("\n" + r.slowdowns())
	}
	if noisy := r.noisy(); len(noisy) > 0 {
		fmt.Fprintf(&b, "\nRepetitions disagree by more than %.0f %% of the median (distance of the quartiles): %s.\n",
			noise*100, strings.Join(noisy, "; "))
	}
	if fewer := r.cutShort(); len(fewer) > 0 {
		fmt.Fprintf(&b, "\nSlow where no goal depends on it, so repeated less than %d times: %s.\n", r.Repetitions, strings.Join(fewer, "; "))
	}
	section(&b, "FUSE requests per pass", r.requestCounts())
	section(&b, "CPU time of the daemon per pass", r.daemonTimes())
	section(&b, "Revocation", r.revocationTable())
	section(&b, "Memory", r.memoryTable())
	section(&b, "Files over MCP", r.filesTable())
	section(&b, "The stdio proxy", r.proxyTable())
	section(&b, "Tools", r.serveTable())
	section(&b, "Fifty patterns", r.turnsTable())
	section(&b, "Start", r.startTable())
	section(&b, "Stage", r.stageTable())
	section(&b, "A large repository with rules", r.repositoryTable())
	section(&b, "Network", r.networkTable())
	section(&b, "Secret", r.secretTable())
	section(&b, "Footprint", r.footprintTable())
	title := "Goals"
	if r.Size.Name != "full" {
		title += " (they are for -size full: what follows shows only that everything runs)"
	}
	section(&b, title, r.goalTable())
	list(&b, "Not measured", r.Skipped)
	list(&b, "Broken", r.broken())
	return b.String()
}

func orNoBindfs(s string) string {
	if s == "" {
		return "no bindfs"
	}
	return s
}

func section(b *strings.Builder, title, table string) {
	if table != "" {
		fmt.Fprintf(b, "\n%s\n\n%s", title, table)
	}
}

func list(b *strings.Builder, title string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(b, "\n%s\n\n", title)
	}
	for _, s := range items {
		fmt.Fprintf(b, "- %s\n", s)
	}
}

func (r *report) slowdowns() string {
	table := [][]string{append([]string{"workload"}, r.Peers...)}
	for _, row := range r.Rows {
		line := []string{row.Workload, absolute(row)}
		for _, p := range r.Peers[1:] {
			line = append(line, ratioText(row, p))
		}
		table = append(table, line)
	}
	return format(table)
}

// absolute returns the native result: a speed where bytes are moved, a time elsewhere.
func absolute(row *row) string {
	c := row.Cells[native]
	switch seconds := medianOf(c); {
	case !c.usable():
		return "BROKEN"
	case row.Bytes > 0:
		return fmt.Sprintf("%.0f MB/s", float64(row.Bytes)/seconds/1e6)
	case seconds < 1:
		return fmt.Sprintf("%.1f ms", seconds*1e3)
	default:
		return fmt.Sprintf("%.2f s", seconds)
	}
}

func medianOf(c *cell) float64 {
	if c == nil {
		return 0
	}
	return median(c.Seconds)
}

func ratioText(row *row, peer string) string {
	if c := row.Cells[peer]; c == nil {
		return "-"
	} else if c.Broken != "" {
		return "BROKEN"
	}
	if ratio, ok := row.ratio(peer); ok {
		return fmt.Sprintf("%.2f", ratio)
	}
	return "-"
}

// noise is the spread above which a cell is named under the table.
const noise = 0.25

func (r *report) noisy() []string {
	var all []string
	for _, row := range r.Rows {
		var peers []string
		for _, p := range r.Peers {
			if c := row.Cells[p]; c.usable() && spread(c.Seconds) > noise {
				peers = append(peers, p)
			}
		}
		if len(peers) > 0 {
			all = append(all, row.Workload+" ("+strings.Join(peers, ", ")+")")
		}
	}
	return all
}

// cutShort names the cells that -limit cut short.
func (r *report) cutShort() []string {
	var all []string
	for _, row := range r.Rows {
		for _, p := range r.Peers {
			if c := row.Cells[p]; c.usable() && len(c.Seconds) < r.Repetitions {
				all = append(all, fmt.Sprintf("%s (%s, %d)", row.Workload, p, len(c.Seconds)))
			}
		}
	}
	return all
}

// requestCounts returns the table of requests for each pass, or "" if no requests could be counted.
func (r *report) requestCounts() string {
	return r.eachPeer(func(c *cell) string {
		if c.Requests == nil {
			return ""
		}
		return fmt.Sprintf("%.0f", c.Requests.Total)
	})
}

// daemonTimes returns the table of the daemons' CPU time for each pass, or "" if no peer is a
// process.
func (r *report) daemonTimes() string {
	return r.eachPeer(func(c *cell) string {
		if len(c.Daemon) == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f ms", median(c.Daemon)*1e3)
	})
}

// eachPeer returns a table with the text of each workload's cell for each peer except native. It
// returns "" if all texts are empty.
func (r *report) eachPeer(text func(*cell) string) string {
	table := [][]string{append([]string{"workload"}, r.Peers[1:]...)}
	hasText := false
	for _, row := range r.Rows {
		line := []string{row.Workload}
		for _, p := range r.Peers[1:] {
			words := ""
			if c := row.Cells[p]; c.usable() {
				words = text(c)
			}
			hasText = hasText || words != ""
			line = append(line, cmp.Or(words, "-"))
		}
		table = append(table, line)
	}
	if !hasText {
		return ""
	}
	return format(table)
}

func (r *report) revocationTable() string {
	if len(r.Revocations) == 0 {
		return ""
	}
	table := [][]string{{"peer", "cached inodes", "open and mapped", "rootsfs revoke", "of which the command itself"}}
	for _, v := range r.Revocations {
		line := []string{v.Peer, fmt.Sprint(v.Inodes), fmt.Sprint(v.Handles)}
		if v.Broken != "" {
			line = append(line, "BROKEN", "-")
		} else {
			line = append(line, fmt.Sprintf("%.0f ms", median(v.Seconds)*1e3), fmt.Sprintf("%.0f ms", median(v.Command)*1e3))
		}
		table = append(table, line)
	}
	return format(table)
}

func (r *report) memoryTable() string {
	if len(r.Memory) == 0 {
		return ""
	}
	table := [][]string{{"peer", "names looked up", "resident", "before", "bytes per name", "against " + bareNodes}}
	var bare int64
	for _, m := range r.Memory {
		if m.RSS == 0 { // broken before it was measured: a peer that broke later has a size
			table = append(table, []string{m.Peer, fmt.Sprint(m.Files), "BROKEN", "-", "-", "-"})
			continue
		}
		if m.Peer == bareNodes {
			bare = m.RSS
		}
		against := "-"
		if bare > 0 {
			against = fmt.Sprintf("%.2f", float64(m.RSS)/float64(bare))
		}
		table = append(table, []string{m.Peer, fmt.Sprint(m.Files), fmt.Sprintf("%d MiB", m.RSS>>20),
			fmt.Sprintf("%d MiB", m.Empty>>20), fmt.Sprint((m.RSS - m.Empty) / int64(m.Files)), against})
	}
	return format(table)
}

func (r *report) goalTable() string {
	if len(r.Goals) == 0 {
		return ""
	}
	table := [][]string{{"goal", "limit", "measured", ""}}
	for _, o := range r.Goals {
		table = append(table, []string{o.Goal, o.Limit, o.Measured, string(o.Status)})
	}
	return format(table)
}

// format lays out a markdown table whose first line is the heading, padded so
// that it can be read as plain text too: names to the left, numbers to the right.
func format(table [][]string) string {
	widths := make([]int, len(table[0]))
	for _, line := range table {
		for i, s := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(s), 3) // 3: the shortest rule markdown knows
		}
	}
	var b strings.Builder
	for n, line := range table {
		for i, s := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(s))
			if i == 0 {
				b.WriteString("| " + s + pad + " |")
			} else {
				b.WriteString(" " + pad + s + " |")
			}
		}
		b.WriteString("\n")
		if n == 0 {
			rules := slices.Clone(widths)
			for i, w := range rules {
				if i == 0 {
					b.WriteString("|" + strings.Repeat("-", w+2) + "|")
				} else {
					b.WriteString(strings.Repeat("-", w+1) + ":|")
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
