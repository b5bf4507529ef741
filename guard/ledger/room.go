package ledger

// Room stores how much room the audit log has promised for the records of one operation. Each of
// the two amounts is taken once: for writing the record, or for giving the room back to the log.
// Only one goroutine may use a Room at a time.
type Room struct {
	// uint32 keeps a Room small: it is part of guard.Lease, which has to fit into a size class of
	// Go's allocator.
	record, closing uint32
}

// SetRecord stores the room for the operation's own record.
func (r *Room) SetRecord(n int64) { r.record = uint32(n) }

// SetClosing stores the room for the record of the close of the file that the operation
// opens.
func (r *Room) SetClosing(n int64) { r.closing = uint32(n) }

// Take returns the room for the operation's own record, and sets it to 0.
func (r *Room) Take() int64 {
	n := r.record
	r.record = 0
	return int64(n)
}

// TakeClosing returns the room for the record of the close, and sets it to 0.
func (r *Room) TakeClosing() int64 {
	n := r.closing
	r.closing = 0
	return int64(n)
}
