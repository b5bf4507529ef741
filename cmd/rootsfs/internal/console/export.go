package console

import (
	"bufio"
	"context"
	"encoding/csv"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/records"
	"github.com/rootsfs/rootsfs/guard/audit"
)

// exportFor bounds an export; one that takes longer is cut, and says so.
const exportFor = 5 * time.Minute

// export answers with every record that matches: as the lines that were written,
// or as CSV.
func (s *Server) export(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, control.Text(err))
		return
	}
	var to exporter
	out := bufio.NewWriterSize(w, 64<<10)
	switch format := r.URL.Query().Get("format"); format {
	case "jsonl":
		to = lines{out}
		w.Header().Set("Content-Type", "application/x-ndjson")
	case "csv":
		to = table{csv.NewWriter(out)}
		_ = to.(table).w.Write(columns) // the first error is end's
		w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	default:
		fail(w, http.StatusBadRequest, "format: there are jsonl and csv")
		return
	}
	done, ok := s.searching(w)
	if !ok {
		return
	}
	defer done()
	w.Header().Set("Content-Disposition", "attachment")
	ctx, cancel := context.WithTimeout(r.Context(), exportFor)
	defer cancel()
	rc, n := http.NewResponseController(w), 0
	_, err = s.cfg.Records.Each(ctx, q, func(e *audit.Entry) error {
		if n%1000 == 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		}
		n++
		return to.add(e)
	})
	if err == nil {
		err = to.end()
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		// Half of it must not pass for the whole: the connection breaks off.
		panic(http.ErrAbortHandler)
	}
}

// exporter writes records in one format.
type exporter interface {
	add(e *audit.Entry) error
	end() error
}

// lines are the records as they were written, hashes included.
type lines struct{ w *bufio.Writer }

func (l lines) add(e *audit.Entry) error {
	if _, err := l.w.Write(e.Line); err != nil {
		return err
	}
	return l.w.WriteByte('\n')
}

func (l lines) end() error { return nil }

// columns of the table.
var columns = []string{"seq", "time", "session", "subject", "via", "uid", "pid", "op", "path", "path2", "verdict", "kind", "errno", "read", "written", "detail"}

// table is CSV with a heading.
type table struct{ w *csv.Writer }

func (t table) add(e *audit.Entry) error {
	one := records.Shown(e)
	uid := ""
	if one.UID != nil {
		uid = strconv.FormatUint(uint64(*one.UID), 10)
	}
	row := []string{
		strconv.FormatUint(one.Seq, 10), one.Time.Format(time.RFC3339Nano), one.Session, one.Subject, one.Via, uid,
		strconv.Itoa(int(one.PID)), one.Op, one.Path, one.Path2, one.Verdict, one.Kind, one.Errno,
		strconv.FormatInt(one.Read, 10), strconv.FormatInt(one.Written, 10), one.Detail,
	}
	for i := range row {
		row[i] = noFormula(row[i])
	}
	return t.w.Write(row)
}

func (t table) end() error {
	t.w.Flush()
	return t.w.Error()
}

// formula is what a spreadsheet takes for the beginning of one: at the beginning of
// a cell, also behind spaces and in the wide forms of East Asia, or behind what
// begins a cell where the list separator is another.
var formula = regexp.MustCompile("(^|[;|])([ \u3000]*)([=+\\-@\uFF1D\uFF0B\uFF0D\uFF20\t\r\n])")

// noFormula keeps a spreadsheet from taking a text for a formula: file names are
// chosen by servers. A quotation mark before it makes it text.
func noFormula(s string) string { return formula.ReplaceAllString(s, "$1$2'$3") }
