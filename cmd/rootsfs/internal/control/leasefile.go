package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A machine that belongs to a fleet has a lease: a file in the runtime directory, which the
// fleet's agent replaces by a rename. Sessions read it and never hold it open.

// Lease is the lease of this machine.
type Lease struct {
	Format  int    `json:"format"`
	Fleet   string `json:"fleet"`
	Machine string `json:"machine"`
	// BootID identifies the boot of the machine, at which the clock of Until began.
	BootID string `json:"boot_id"`
	// TimeNS is the time namespace of the clock of Until. Each namespace has an offset of its own.
	TimeNS string `json:"time_ns"`
	// Until is the end of the lease by CLOCK_BOOTTIME, in nanoseconds.
	Until int64 `json:"until_boot_ns"`
	// Heads has the number of the newest order that the agent knows, by the recipient of the
	// order. The agent may not have carried out the order yet.
	Heads map[string]uint64 `json:"heads"`
	// Locked says why the fleet has locked the machine; "": it has not.
	Locked string `json:"locked"`

	// Written is when the agent wrote the file.
	Written time.Time `json:"-"`
}

const (
	leaseDir    = ".fleet" // in the runtime directory; no session has such a name
	leaseFile   = "lease"
	leaseFormat = 1
	maxLease    = 64 << 10
	bootIDFile  = "/proc/sys/kernel/random/boot_id"
	timeNSLink  = "/proc/self/ns/time"
)

// LeaseDir returns the directory of the lease.
func LeaseDir() string { return filepath.Join(RuntimeDir(), leaseDir) }

// ReadLease reads the machine's lease. It refuses a file that belongs to another user or is open to
// other users. It also refuses a lease with another format, with an unknown field, or by another
// clock than that of this process. It does not check whether the lease has run out.
func ReadLease() (Lease, error) {
	l, err := readLease()
	if err != nil {
		return Lease{}, fmt.Errorf("the lease %s cannot be used: %w", names.Quote(filepath.Join(LeaseDir(), leaseFile)), err)
	}
	return l, nil
}

func readLease() (l Lease, err error) {
	dir, err := openPrivate(LeaseDir())
	if err != nil {
		return l, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, leaseFile, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return l, err
	}
	f := os.NewFile(uintptr(fd), leaseFile)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return l, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return l, errors.New("it is no regular file")
	case int(st.Uid) != os.Geteuid():
		return l, fmt.Errorf("it belongs to the user with id %d, not to you", st.Uid)
	case st.Mode&0o077 != 0:
		return l, fmt.Errorf("it is open to other users (mode %04o)", st.Mode&0o7777)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLease))
	if err != nil {
		return l, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return l, fmt.Errorf("it is not understood: %w", err)
	}
	boot, timeNS, err := clock()
	if err != nil {
		return l, err
	}
	switch {
	case l.Format != leaseFormat:
		return l, fmt.Errorf("it has the format %d, and this version of rootsfs knows %d", l.Format, leaseFormat)
	case l.BootID != boot:
		return l, errors.New("it is of an earlier boot of the machine")
	case l.TimeNS != timeNS:
		return l, errors.New("it is by the clock of another time namespace: run the agent and the sessions in the same one")
	}
	l.Written = time.Unix(st.Mtim.Unix())
	return l, nil
}

// clock returns the boot and the time namespace of this process's CLOCK_BOOTTIME.
func clock() (boot, timeNS string, err error) {
	data, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", "", err
	}
	timeNS, err = os.Readlink(timeNSLink)
	if errors.Is(err, fs.ErrNotExist) { // this kernel has no time namespaces
		err = nil
	}
	return strings.TrimSpace(string(data)), timeNS, err
}

// WriteLease replaces the machine's lease. It sets the format and the clock.
func WriteLease(l Lease) (err error) {
	l.Format = leaseFormat
	if l.BootID, l.TimeNS, err = clock(); err != nil {
		return err
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := EnsureRuntimeDir(); err != nil {
		return err
	}
	if err := os.Mkdir(LeaseDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := openPrivate(LeaseDir())
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return replaceFile(filepath.Join(LeaseDir(), leaseFile), data)
}

// BootTime returns the time since the machine was booted, by the clock that goes on while the
// machine sleeps and that nobody can set.
func BootTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}

// Left returns how long the lease still lasts. It is 0 or less if the lease has run out, if the
// machine is locked, or if the clock cannot be read.
func (l *Lease) Left() time.Duration {
	now, err := BootTime()
	if err != nil || l.Locked != "" {
		return 0
	}
	return time.Duration(l.Until) - now
}
