package ledger

// Room is the room in the audit log that was promised for the records of one operation. It is
// taken once: with the record, or to give it back. One goroutine uses it at a time.
type Room struct {
	// small: a lease of package guard has to fit into a size class
	record, closing uint32
}

// SetRecord stores the room for the operation's own record.
func (r *Room) SetRecord(n int64) { r.record = uint32(n) }

// SetClosing stores the room for the record of the close of the file that the operation
// opens.
func (r *Room) SetClosing(n int64) { r.closing = uint32(n) }

// Take hands over the room for the operation's own record.
func (r *Room) Take() int64 {
	n := r.record
	r.record = 0
	return int64(n)
}

// TakeClosing hands over the room for the record of the close.
func (r *Room) TakeClosing() int64 {
	n := r.closing
	r.closing = 0
	return int64(n)
}
