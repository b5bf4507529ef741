package vfs

import (
	"reflect"

	"github.com/rootsfs/rootsfs/guard"
)

// Listed is one entry of a listing.
type Listed struct {
	Path guard.Path // below the path as it was given
	Name string
	// Info is that of the link itself where the entry is one. Of a nested
	// root that the caller may not enter it holds nothing but the type, and
	// so it does with NoInfo.
	Info Info
}

// Page is one part of a listing. Its strings share memory: who keeps one of them
// for long clones it.
type Page struct {
	Entries []Listed
	// Next is the cursor of the next page, "" after the last.
	Next string
}

// roomStep is the least that Room is asked for at a time, bytes: small pages ask
// once.
const roomStep = 32 << 10

var listedSize = int64(reflect.TypeFor[Listed]().Size())

// room asks for the memory of a page with room for so many entries, with the paths
// so far, and for what they and the next, of this weight, become elsewhere.
func (ls *listing) room(entries, weight int) error {
	need := ls.made + int64(entries)*listedSize
	if ls.o.Weigh != nil {
		need += int64(ls.bytes + weight)
	}
	if ls.o.Room == nil || need <= ls.counted {
		return nil
	}
	step := max(need-ls.counted, roomStep)
	if err := ls.o.Room(step); err != nil {
		return err
	}
	ls.counted += step
	return nil
}
