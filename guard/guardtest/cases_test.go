package guardtest

import (
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Each kind of refusal is the verdict that at least one case wants.
func TestEveryRefusalHasACase(t *testing.T) {
	wanted := map[names.Kind]bool{}
	for _, c := range append(allCases(), rightsCases()...) {
		wanted[c.Want] = true
	}
	for k := names.Other + 1; k.String() != names.Other.String(); k++ {
		if k.Refusal() && !wanted[k] {
			t.Errorf("no case ends in %v", k)
		}
	}
}
