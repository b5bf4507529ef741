package guardtest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
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

// limitsOfOneRoot are the limits of a nested root that hold only for the operations that come
// through it, with the reason. A limit that is not here bounds what lies in the root.
var limitsOfOneRoot = map[string]string{
	"OpsPerSecond":  "an operation waits for the speed of the root through which it comes",
	"Burst":         "it is part of the speed",
	"BytesInFlight": "an operation waits for the room of the root through which it comes",
	"Timeout":       "an operation has one time limit, that of the root through which it comes",
	"MaxStage":      "one caller cannot use both a staged root and a root inside it or around it",
}

// Each limit of a root also bounds what the caller does in it through an outer root, and a case of
// nestedLimitCases shows it; or limitsOfOneRoot has the reason why it does not.
func TestEachLimitHoldsThroughAnOuterRoot(t *testing.T) {
	for f := range reflect.TypeFor[guard.Limits]().Fields() {
		shown := slices.ContainsFunc(nestedLimitCases(), func(c Case) bool {
			return !reflect.ValueOf(c.MoreLimits).FieldByIndex(f.Index).IsZero() && strings.Contains(c.Call.Text, "code/sub/") && (c.Want != 0 || c.Check != nil)
		})
		if _, excepted := limitsOfOneRoot[f.Name]; shown == excepted {
			t.Errorf("%s: a case through an outer root: %v, in limitsOfOneRoot: %v; want one of the two", f.Name, shown, excepted)
		}
	}
	for name := range limitsOfOneRoot {
		if _, ok := reflect.TypeFor[guard.Limits]().FieldByName(name); !ok {
			t.Errorf("limitsOfOneRoot has %s, which is no limit", name)
		}
	}
}
