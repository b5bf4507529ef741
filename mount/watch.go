package mount

import (
	"github.com/rootsfs/rootsfs/vfs"
)

func (n *node) watched() bool            { return false }
func (n *node) parentWatched() bool      { return false }
func (n *node) writing()                 {}
func (n *node) written(*vfs.Info, error) {}
