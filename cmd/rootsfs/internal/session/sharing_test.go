package session

import (
	"testing"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// A root that was allowed to requests without a session says who else has it.
func TestRootsSaySharing(t *testing.T) {
	st := control.Status{
		Roots: []control.Root{{Name: "a", Subject: "s#1"}, {Name: "b", Subject: "s#2"}, {Name: "c"}},
		Files: []broker.Stats{{Subject: "s#2"}, {Subject: "s#1", SharedBy: "all"}, {SharedBy: "nobody in particular"}},
	}
	addSharing(&st)
	if st.Roots[0].SharedBy != "all" || st.Roots[1].SharedBy != "" || st.Roots[2].SharedBy != "" {
		t.Errorf("%+v", st.Roots)
	}
}
