package console

import (
	"bufio"
	"context"
	"net/http"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
)

// exportFor bounds an export; one that takes longer is cut, and says so.
const exportFor = 5 * time.Minute

// export answers with every record that matches, as the lines that were written, hashes
// included.
func (s *Server) export(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, control.Text(err))
		return
	}
	done, ok := s.searching(w)
	if !ok {
		return
	}
	defer done()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", "attachment")
	ctx, cancel := context.WithTimeout(r.Context(), exportFor)
	defer cancel()
	out := bufio.NewWriterSize(w, 64<<10)
	rc, n := http.NewResponseController(w), 0
	_, err = s.cfg.Records.Each(ctx, q, func(e *audit.Entry) error {
		if n%1000 == 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		}
		n++
		_, _ = out.Write(e.Line) // Flush tells the first error
		return out.WriteByte('\n')
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		// Half of it must not pass for the whole: the connection breaks off.
		panic(http.ErrAbortHandler)
	}
}
