// Package audit keeps audit records: it writes guard.Record values as JSON
// lines, one file per session with rotation by size, links the lines into a
// hash chain, and reads, follows and verifies these files.
//
// # Format
//
// One record is one line of valid JSON, whatever a file name holds: control,
// bidirectional and other invisible characters are written as \u escapes. Empty
// fields are omitted. A path that is not UTF-8 appears in "path" with replacement
// characters, and in "raw_path" as its first 4 KiB (PATH_MAX), in base64. The length of text is
// limited after escaping, so that long or much-escaped names cannot make the log grow fast. A
// line whose text was cut says "truncated":true. A path is cut after 4 KiB. The line then also has
// "path_sha256", the hash of the whole path. It also has "raw_path" if the path is UTF-8 and has at
// most 4 KiB without escapes. The fields are those of Entry. Contents of files are never
// written, only byte counts. Paths of the host in fields of guard.Facts are written whole or
// not at all. Format 1 has no fields of guard.Facts; its files stay readable.
//
// Files lie in Options.Dir and are called
//
//	SESSION-20060102T150405.000000000Z.jsonl     the file that Open begins
//	SESSION-20060102T150405.000000000Z.1.jsonl   its first continuation, and so on
//
// A full file is compressed, and so is the last file of a session that ends, if it has 64
// KiB or more. Its name then also ends in .zst: it is a zstd file of the same bytes.
//
// The time in the name is that of Open, in UTC. If the clock was set back, it is just after the
// time in the names of the session's previous run instead, so that names sort by age. The first
// line of each file is a header. It has op "session", the format's number, the file's own name, the
// way paths are written and the first sequence number that was not pruned ("kept_from"). The header
// of the file that Open begins also has the anchor as Open found it. When a file has reached
// Options.MaxBytes, the next record begins the next file.
//
// # Chain
//
// The lines of one session are numbered from 1 without gaps ("seq"), over
// rotations and restarts. A line ends with
//
//	,"prev":"P","hash":"H"}
//
// where P is the hash of the line before (64 zeros for line 1) and H is
//
//	SHA-256( the 32 bytes of P || the line's bytes before ,"hash":" )
//
// both in lower-case hexadecimal. The anchor, a file in the state directory,
// holds the number and the hash of a line that is on disk. It is replaced
// atomically after the log was synced: at most once a second after refusals and
// failures, and at once after Open, rotation and Close. It also holds the first sequence
// number that was not pruned.
//
// # Promises
//
//   - A refusal or a failure is in the file (write(2) has returned) before Record
//     returns nil, after everything queued before it. Two kinds are only counted:
//     repetitions within a second, and those above the subject's budget, which are summed
//     up (limits.go). If a record cannot be written, Record returns an error, and
//     the guard then fails the operation. The record stays queued, and is written, in
//     order, as soon as writing works; if the queue or the disk is full, it is summed up.
//   - Other records are written at most 100 ms later, sooner if many are queued, and on
//     Close. Repetitions are counted, and the count is written about a second later, or
//     once there is room. A change is never counted, summed up or left out.
//   - A record for which Reserve promised room is taken, and there is room for it on the
//     disk, if the file system can promise that (fallocate). An operation for which
//     there is no room is refused before it begins. Bytes written to an open file are in
//     the record of its close. The guard reserves room for that record when a file is
//     opened for writing, so such writes go on while the disk is full. A record without a
//     reservation waits while the disk is merely slow, and is dropped if the disk is full. Once
//     there is room again, a line of op "lost" says how many records were dropped.
//   - Whatever one subject does, its refusals and failures take at most 1 MiB and then 4
//     KiB a second. After compression, its other records take about 256 MiB and then
//     24 KiB a second.
//   - To keep within Options.MaxTotal, files of the session with the most bytes are deleted,
//     never those of a live session. A live session writes no more than its share, half of
//     MaxTotal. When half of the share is used, all its subjects together are slowed. The
//     less is left, the slower they get, and the more of their refusals are summed up.
//     When nothing is left, their operations are refused. The owner's own records are not
//     slowed.
//   - Verify detects within a session: a line edited, removed, inserted or moved;
//     a file renamed, removed, replaced or cut short before the anchored line;
//     and the removal of the oldest files, unless this package pruned them.
//
// # Not promised
//
//   - The chain proves order and completeness against the anchor, not origin. A process
//     that can write both the directory and the anchor can rewrite the whole chain and
//     anchor it again: any process of the same user outside a sandbox, and any process of the
//     superuser.
//     Copy the anchor elsewhere to prove more.
//   - Lines after the anchored one can be cut off unnoticed: at most about a second of
//     refusals, and the allowed records since.
//   - write(2) is not fsync(2). A crash of the process loses at most 100 ms of
//     allowed records. A power failure loses what the kernel had not written since the
//     last anchor, and may leave the previous anchor in place of the last one. A line torn
//     by a crash is reported, not repaired.
//   - A crash also loses counts of repetitions of about the last second, and sums of the
//     last ten seconds, or of five minutes when half of the session's share is used. Of
//     refusals that were counted as repetitions, the first is in the file.
//   - Every file is kept unless Options.MaxAge or MaxTotal asks for the oldest to be
//     deleted. The records of deleted files can no longer be verified. The chain then begins
//     at a later number, which is in the newest header or in the anchor, and only the links
//     from there on are proved.
//   - Without the key, guesses at a hashed path (PathsHash) cannot be tested; with the key
//     they can. Root names, operations and times stay readable.
//     Names of subjects and sessions are not paths and are written as they are.
//
// A Log may be used by many goroutines. Two Logs of one session in the same
// directory exclude each other, between processes too. Give each session an
// anchor of its own.
package audit
