package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
)

// mib is the size of a read or a write in the sequential workloads.
const mib = 1 << 20

func seqRead(j *job) error { return readThrough(j, j.lab.seqFile(), j.size.SeqBytes) }

// readWholeRandFile warms every page that the random reads may touch: a random
// pass alone would leave a third of them cold.
func readWholeRandFile(j *job) error { return readThrough(j, j.lab.randFile(), j.size.RandBytes) }

func readThrough(j *job, name string, size int64) (err error) {
	f, err := os.Open(j.via(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, mib)
	for off := int64(0); ; {
		n, err := io.ReadFull(f, buf)
		if err == io.EOF {
			return want("bytes read", off, size)
		}
		if err != nil {
			return err
		}
		if err := checkStamps(buf[:n], off/block, 0); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		off += int64(n)
	}
}

// randRead reads random blocks: the same ones in every pass of a phase, on every peer.
func randRead(j *job) (err error) {
	f, err := os.Open(j.via(j.lab.randFile()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, block)
	rng := rand.New(rand.NewPCG(1, 2))
	for range randReads(j.size, j.phase) {
		i := rng.Int64N(j.size.RandBytes / block)
		if _, err := f.ReadAt(buf, i*block); err != nil {
			return err
		}
		if err := checkStamps(buf, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// randReads returns the number of reads in a pass. A cold pass has fewer, because each of its reads
// costs the disk a seek.
func randReads(s sizes, p phase) int {
	if p == cold {
		return s.RandReads / 4
	}
	return s.RandReads
}

// seqWrite writes a new file and syncs it.
func seqWrite(j *job) (err error) {
	name := "seq" + strconv.Itoa(j.pass)
	f, err := os.OpenFile(j.via(scratch, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = writeStamped(f, mib, j.size.SeqBytes, j.pass)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	j.stop()
	defer j.start()
	if err := verifyStamped(j.result(scratch, name), j.size.SeqBytes, j.pass); err != nil {
		return err
	}
	return os.Remove(j.via(scratch, name))
}

// smallWrites overwrites a file 4 KiB at a time and does not sync. It is also the workload's
// prepare function, which makes the file.
func smallWrites(j *job) error {
	f, err := os.OpenFile(j.via(scratch, "small"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = writeStamped(f, block, j.size.SmallBytes, j.pass)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	j.stop()
	defer j.start()
	return verifyStamped(j.result(scratch, "small"), j.size.SmallBytes, j.pass)
}

// writeStamped writes size bytes in pieces. Pieces differ in their stamps only, so the time to make
// a piece is nothing against the time to write it.
func writeStamped(f *os.File, piece int, size int64, generation int) error {
	buf := make([]byte, piece)
	for off := int64(0); off < size; off += int64(piece) {
		stamp(buf, off/block, generation)
		if _, err := f.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// verifyStamped checks the size of a file, and the stamp of the first block of each mebibyte.
func verifyStamped(path string, size int64, generation int) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := want("bytes written", info.Size(), size); err != nil {
		return err
	}
	buf := make([]byte, block)
	for off := int64(0); off < size; off += mib {
		if _, err := f.ReadAt(buf, off); err != nil {
			return err
		}
		if err := checkStamps(buf, off/block, generation); err != nil {
			return fmt.Errorf("read back from the source: %w", err)
		}
	}
	return nil
}

// want returns an error if a count is not the expected one.
func want(what string, got, want int64) error {
	if got != want {
		return fmt.Errorf("%s: %d, want %d", what, got, want)
	}
	return nil
}
