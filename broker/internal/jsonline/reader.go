package jsonline

import (
	"bufio"
	"errors"
)

// ReadLine reads one line into buf, which it grows as needed, and returns it with its
// end. Of a line longer than limit bytes it returns only the Head, so its memory is
// bounded by limit, whatever comes. A line that the stream ends in is lost: the error is
// the stream's.
func ReadLine(r *bufio.Reader, buf []byte, limit int) (line []byte, long *Head, err error) {
	line = buf[:0]
	for {
		part, err := r.ReadSlice('\n')
		if long == nil && len(line)+len(part) > limit {
			long = HeadOf(line)
		}
		if long != nil {
			long.Feed(part)
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, nil, err
		case long != nil:
			return nil, long, nil
		}
		return line, nil, nil
	}
}
