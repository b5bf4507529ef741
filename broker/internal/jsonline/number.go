package jsonline

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strconv"
)

// placeholder begins the strings that replace numbers while the SDK has a message. It is
// random, so that no peer can guess it.
var placeholder = "rootsfs-number-" + rand.Text() + ":"

// isRounded reports whether a raw value is a number that the SDK may change: the SDK reads numbers
// as float64 and converts them to int64.
func isRounded(raw []byte) bool {
	const most = 1 << 53
	if len(raw) == 0 || len(raw) > longestID || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return err != nil || n > most || n < -most || strconv.FormatInt(n, 10) != string(raw)
}

// hideNumber returns the JSON string that stands for a number that would be rounded, and nil
// for anything else.
func hideNumber(raw []byte) []byte {
	if !isRounded(raw) {
		return nil
	}
	return []byte(`"` + placeholder + string(raw) + `"`)
}

// HideNumbers returns a message in which strings replace the numbers that the peer must get
// back unchanged: the id, the id of a request to cancel, the token of progress. It replaces only
// numbers that the SDK may change. ShowNumbers puts the numbers back. A message without such
// numbers is returned as it is.
func HideNumbers(msg []byte) []byte {
	p, ok := Parse(msg)
	if !ok {
		return msg
	}
	parts := []struct {
		at   Span
		with []byte
	}{{p.ID, hideNumber(p.ID.Of(msg))}, {p.Params, HideIn(p.Params.Of(msg))}}
	if p.Params.From < p.ID.From {
		parts[0], parts[1] = parts[1], parts[0]
	}
	out, from := []byte(nil), 0
	for _, part := range parts {
		if part.with != nil {
			out = append(append(out, msg[from:part.at.From]...), part.with...)
			from = part.at.To
		}
	}
	if from == 0 {
		return msg
	}
	return append(out, msg[from:]...)
}

// HideIn does for params what HideNumbers does for a message. It returns nil if there is
// no number to hide.
func HideIn(params []byte) []byte {
	if !bytes.Contains(params, []byte(`"requestId"`)) && !bytes.Contains(params, []byte(`"progressToken"`)) {
		return nil
	}
	return hideIn(params, "requestId")
}

// hideIn hides the number in a field, and the number in the progress token below _meta. It returns
// nil if there is no number to hide.
func hideIn(object []byte, field string) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return nil
	}
	changed := false
	if hidden := hideNumber(fields[field]); hidden != nil {
		fields[field], changed = hidden, true
	}
	if meta := fields["_meta"]; field != "progressToken" && len(meta) > 0 {
		if hidden := hideIn(meta, "progressToken"); hidden != nil {
			fields["_meta"], changed = hidden, true
		}
	}
	if !changed {
		return nil
	}
	return AppendValue(nil, fields)
}

// ShowNumbers puts the numbers back in the place of their strings, in text that the SDK made.
func ShowNumbers(text []byte) []byte {
	mark := []byte(`"` + placeholder)
	if !bytes.Contains(text, mark) {
		return text
	}
	var out []byte
	for {
		before, after, found := bytes.Cut(text, mark)
		out = append(out, before...)
		if !found {
			return out
		}
		end := max(0, bytes.IndexByte(after, '"'))
		if number := after[:end]; isRounded(number) && !bytes.HasSuffix(before, []byte(`\`)) {
			out, text = append(out, number...), after[end+1:]
		} else {
			out, text = append(out, mark...), after
		}
	}
}
