package draft

import "strings"

// maxUpperFiles is how many files of the upper the store indexes. The index of so many files takes
// about 30 MiB of memory. Programs may make more files. The directories that get them become
// crowded, and look-ups in a crowded directory must ask the upper.
var maxUpperFiles = 1 << 18 // tests replace it

// upperDir is a directory of the upper in the index.
type upperDir struct {
	entries map[string]*upperDir // nil for a file that is no directory
	// files is how many entries are nil.
	files int
	// isCrowded says that the upper may have files here that entries lacks. entries always has all
	// directories.
	isCrowded bool
}

// locate walks a path. It returns the length of its longest part that is a directory of the
// upper. If mayHave is false, the upper has nothing at the path, and only directories at the paths
// above.
func (d *upperDir) locate(rel string) (length int, mayHave bool) {
	for at := 0; rel[at:] != ""; {
		name, _, _ := strings.Cut(rel[at:], "/")
		next, ok := d.entries[name]
		switch {
		case !ok:
			return length, d.isCrowded
		case next == nil:
			return length, true
		}
		length = at + len(name)
		at, d = min(length+1, len(rel)), next
	}
	return length, true
}

// find returns the directory at a path, nil if there is none.
func (d *upperDir) find(rel string) *upperDir {
	if length, _ := d.locate(rel); length < len(rel) {
		return nil
	}
	for name := range strings.SplitSeq(rel, "/") {
		if name != "" {
			d = d.entries[name]
		}
	}
	return d
}

// crowd drops the files of the directory from the index. It returns how many there were.
func (d *upperDir) crowd() int {
	for name, sub := range d.entries {
		if sub == nil {
			delete(d.entries, name)
		}
	}
	dropped := d.files
	d.files, d.isCrowded = 0, true
	return dropped
}

// splitPath splits a path into its directory and its last element.
func splitPath(rel string) (parent, base string) {
	i := strings.LastIndexByte(rel, '/')
	return rel[:max(i, 0)], rel[i+1:]
}

// AddUpper records in memory that the upper has a file or directory at a path. The caller records a
// name as a file before it makes the name, so that no look-up misses the name. After the caller has
// made a directory, it records the name as a directory. A name that was not made may stay recorded.
func (s *Store) AddUpper(rel string, isDir bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addUpper(rel, isDir)
}

func (s *Store) addUpper(rel string, isDir bool) {
	if rel == "" {
		return
	}
	parent, base := splitPath(rel)
	d := s.names.find(parent)
	if d == nil {
		s.addUpper(parent, true)
		d = s.names.find(parent)
	}
	sub, ok := d.entries[base]
	switch {
	case ok && (sub != nil || !isDir):
	case isDir:
		s.setEntry(d, base, &upperDir{})
	default:
		s.setEntry(d, base, nil)
	}
}

// setEntry sets an entry; a nil sub is a file. Without room for one more file, the directory becomes
// crowded.
func (s *Store) setEntry(d *upperDir, name string, sub *upperDir) {
	s.removeEntry(d, name)
	switch {
	case sub == nil && d.isCrowded:
		return
	case sub == nil && s.files >= maxUpperFiles:
		s.files -= d.crowd()
		return
	case sub == nil:
		d.files++
		s.files++
	}
	if d.entries == nil {
		d.entries = map[string]*upperDir{}
	}
	d.entries[name] = sub
}

// removeEntry removes an entry, and returns it.
func (s *Store) removeEntry(d *upperDir, name string) *upperDir {
	sub, ok := d.entries[name]
	delete(d.entries, name)
	if ok && sub == nil {
		d.files--
		s.files--
	}
	return sub
}

// drop stops counting the files that the index has in d, a directory that was removed. Those files
// were recorded and never made. If d is nil, drop does nothing.
func (s *Store) drop(d *upperDir) {
	if d != nil {
		s.files -= d.files
	}
}

// DropUpper records in memory that the upper has no file at a path any more.
func (s *Store) DropUpper(rel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parent, base := splitPath(rel)
	if d := s.names.find(parent); d != nil {
		s.drop(s.removeEntry(d, base))
	}
	s.Freed()
}

// MoveUpper moves the upper's file at a path to another path by calling move. With exchange, the
// file there gets the first path. The upper must have the directories of both paths. While move
// runs, look-ups must ask the upper.
func (s *Store) MoveUpper(from, to string, exchange bool, move func() error) error {
	s.mu.Lock()
	s.moving = true
	s.mu.Unlock()
	err := move()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving = false
	if err != nil {
		return err
	}
	fromParent, fromBase := splitPath(from)
	toParent, toBase := splitPath(to)
	a, b := s.names.find(fromParent), s.names.find(toParent)
	old, replaced := s.removeEntry(a, fromBase), s.removeEntry(b, toBase) // nil: a file, perhaps in a crowded directory
	if s.setEntry(b, toBase, old); exchange {
		s.setEntry(a, fromBase, replaced)
	} else {
		s.drop(replaced)
		s.Freed()
	}
	return nil
}
