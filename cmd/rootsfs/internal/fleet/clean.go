package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A machine's answer is read by commands that trust the sessions of their own machine: they print
// some of its texts as they are, and take some of its paths for files here. So an answer is read and
// written anew before a command gets it.

// maxClean bounds one JSON value of an answer, and an answer that is text. A value can be a whole
// status.
const maxClean = 8 << 20

// bounded is a reader that returns at most left bytes of r, and then an error.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// cleanJSON copies the JSON values of an answer, with escaped texts. It replaces the name of the
// answer's session with name. It returns the error that ended the copying: io.EOF at the end of the
// answer.
func cleanJSON(w io.Writer, r io.Reader, name string) error {
	from := &bounded{r: r}
	dec := json.NewDecoder(from)
	dec.UseNumber() // a number is copied as it is
	for {
		from.left = maxClean
		var v any
		if err := dec.Decode(&v); err != nil {
			return err
		}
		v = cleanValue(v)
		if top, ok := v.(map[string]any); ok {
			makeLocal(top, name)
			if status, ok := top["status"].(map[string]any); ok { // an update has a status
				makeLocal(status, name)
			}
		}
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(data, '\n')); err != nil {
			return err
		}
	}
}

// makeLocal replaces the name of the session in a part of an answer with name. It removes the fields that
// commands would take for files or mounts of this machine.
func makeLocal(fields map[string]any, name string) {
	if _, ok := fields["session"]; ok {
		fields["session"] = name
	}
	for _, key := range []string{"config", "audit_file", "stale"} {
		delete(fields, key)
	}
}

// cleanValue escapes the texts of a JSON value, and the names of its fields: see names.EscapeQuoted.
func cleanValue(v any) any {
	switch v := v.(type) {
	case string:
		return names.EscapeQuoted(v)
	case []any:
		for i := range v {
			v[i] = cleanValue(v[i])
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, one := range v {
			clean[names.EscapeQuoted(key)] = cleanValue(one)
		}
		return clean
	}
	return v
}

// cleanText copies lines of text, escaped.
func cleanText(w io.Writer, r io.Reader) error {
	lines := bufio.NewScanner(&bounded{r, maxClean})
	for lines.Scan() {
		if _, err := fmt.Fprintln(w, names.EscapeQuoted(lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}
