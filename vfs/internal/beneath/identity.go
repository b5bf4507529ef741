package beneath

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/rules"
)

// A file of a staged root keeps the identity that it showed first. When a file of the source is
// copied to the upper directory, the copy shows the identity of the original. Programs may
// still find the original under another name: it has a hard link, or the owner has renamed it.
// Original and copy are different files by then, so the original shows another identity.
// Otherwise the kernel would take the two for one file and mix their pages.
//
// When the owner's apply has brought the copy into the source, the new file there shows the
// copy's identity. So programs that have it open keep one file.
//
// The table is in memory only: a program that knows an identity does not outlive the session.

// identities maps the files of a staged root to the identities that they show.
type identities struct {
	upperDev, lowerDev uint64

	mu sync.RWMutex // guards the fields below
	// shown has the files that show another identity than their own: copies in the upper
	// directory, and files of the source that replaced such copies.
	shown map[inode]shownID
	// copies counts how often files of the source with an inode number were copied. It includes
	// earlier files with that number, because their copies still show it.
	copies map[uint64]uint64
}

// inode identifies a file on the host.
type inode struct{ dev, ino uint64 }

func inodeOf(id rules.Identity) inode { return inode{id.Dev, id.Ino} }

// shownID is the identity that a file shows. birth distinguishes the file from a later one with
// the same inode number.
type shownID struct {
	birth   int64
	id      rules.Identity
	isLower bool // the file is the source's
}

// In the inode numbers that programs see, the bits from copyShift on count the copies of an
// original that still has another name. apartBit marks files that were made in a store on
// another file system than the source. So no two files of a root have the same number, if the
// file systems use numbers below 1<<47, as all but the largest do.
const (
	apartBit  = 1 << 47
	copyShift = 48
)

// id returns the identity that a file shows.
func (t *identities) id(ownID rules.Identity) rules.Identity {
	t.mu.RLock()
	s, ok := t.shown[inodeOf(ownID)]
	shown := t.idLocked(ownID)
	t.mu.RUnlock()
	if ok && s.birth != ownID.Birth {
		t.forget(ownID)
	}
	return shown
}

func (t *identities) idLocked(ownID rules.Identity) rules.Identity {
	if s, ok := t.shown[inodeOf(ownID)]; ok && s.birth == ownID.Birth {
		return s.id
	}
	if ownID.Dev == t.upperDev && t.upperDev != t.lowerDev {
		ownID.Dev, ownID.Ino = t.lowerDev, ownID.Ino|apartBit
		return ownID
	}
	ownID.Ino += t.copies[ownID.Ino] << copyShift
	return ownID
}

// show replaces the attributes of a file by those that the stage shows. Directories have one
// link, as on file systems that do not count them.
func (t *identities) show(info *Info) {
	ownID := info.ID()
	if id := t.id(ownID); id != ownID {
		info.Dev, info.Ino = id.Dev, id.Ino
		info.Btime = unix.StatxTimestamp{Sec: id.Birth / 1e9, Nsec: uint32(id.Birth % 1e9)}
	}
	if info.IsDir() && info.Nlink > 0 {
		info.Nlink = 1
	}
}

// inode returns the number that an entry of the upper directory or the source shows.
func (t *identities) inode(ownIno uint64, isUpper bool) uint64 {
	dev := t.lowerDev
	if isUpper {
		dev = t.upperDev
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s, ok := t.shown[inode{dev, ownIno}]; ok && s.isLower == !isUpper {
		return s.id.Ino
	}
	if isUpper && t.upperDev != t.lowerDev {
		return ownIno | apartBit
	}
	return ownIno + t.copies[ownIno]<<copyShift
}

// recordCopy records that up, in the upper directory, is a copy of low, in the source.
func (t *identities) recordCopy(up, low rules.Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown[inodeOf(up)] = shownID{up.Birth, t.idLocked(low), false}
	delete(t.shown, inodeOf(low))
	t.copies[low.Ino]++
}

// recordApplied records that low, in the source, replaces up, in the upper directory.
func (t *identities) recordApplied(low, up rules.Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown[inodeOf(low)] = shownID{low.Birth, t.idLocked(up), true}
}

// forget drops the entry of an earlier file that had the inode number of a file just made.
func (t *identities) forget(made rules.Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.shown, inodeOf(made))
}
