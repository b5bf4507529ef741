package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// A remembered denial is listed and can be lifted. Lifting leaves a record and grants nothing, but
// the owner is asked again.
func TestDenialsAreListedAndLifted(t *testing.T) {
	a := newAsker(t, "")
	a.contains("nothing yet", a.cli(cli.ExitOK, "consent", "denials"), "no denial is remembered", "--remember")
	if got := a.cli(cli.ExitOK, "consent", "denials", "--json"); got != "[]\n" {
		t.Errorf("nothing yet: %q", got)
	}
	a.contains("nothing to lift", a.cli(cli.ExitOK, "consent", "forget", "--all"), "no denial is remembered")
	odd := a.work + "/src/\u202eodd\nname"
	a.ask("", "ro", a.work+"/src/priv", odd)
	a.cli(cli.ExitOK, "consent", "deny", a.waiting(1)[0].ID, "--remember")
	if res := a.result(); res.Granted {
		t.Fatalf("%+v", res)
	}
	var list []control.Denial
	if err := json.Unmarshal([]byte(a.cli(cli.ExitOK, "consent", "denials", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Path.Raw() != a.work+"/src/priv" || list[1].Path.Raw() != odd || list[0].Subject != "indexer" || list[0].Since.IsZero() || len(list[0].ID) != 26 {
		t.Fatalf("%+v", list)
	}
	text := a.cli(cli.ExitOK, "consent", "denials")
	a.contains("denials", text, list[0].ID[:8]+"  ", "indexer", a.work+"/src/priv\n", `src/\u{202e}odd\nname"`, "rootsfs consent forget "+list[0].ID[:8])
	if strings.Contains(text, "\u202e") {
		t.Errorf("a name reverses the text of the line: %q", text)
	}
	a.contains("status", a.cli(cli.ExitOK, "status"), "2 denials remembered", "rootsfs consent denials")

	a.contains("no such", a.cli(cli.ExitNoSuch, "consent", "forget", "zzzz0"), "no remembered denial has the id", "rootsfs consent denials")
	a.ask("", "ro", a.work+"/src/priv")
	if res := a.result(); res.Granted || res.Reason != "denied" {
		t.Errorf("still denied: %+v", res)
	}
	a.contains("lifted", a.cli(cli.ExitOK, "consent", "forget", list[0].ID[:8]), "indexer may ask again: "+a.work+"/src/priv")
	a.contains("lifted twice", a.cli(cli.ExitNoSuch, "consent", "forget", list[0].ID), "no remembered denial has the id")
	a.ask("", "ro", a.work+"/src/priv")
	q := a.waiting(1)[0]
	a.cli(cli.ExitOK, "consent", "approve", q.ID)
	if res := a.result(); !res.Granted {
		t.Errorf("asked again, and approved: %+v", res)
	}
	a.contains("the rest", a.cli(cli.ExitOK, "consent", "forget", "--all", "--json"), list[1].ID)
	if got := a.cli(cli.ExitOK, "consent", "denials", "--json"); got != "[]\n" {
		t.Errorf("all lifted: %q", got)
	}
	// Records of allowed operations are written a little later.
	a.recorded("may ask again")
	a.contains("on record", a.cli(cli.ExitOK, "audit", "show"), `subject indexer may ask again: `+a.work+`/src/priv`, `src/\u{202e}odd\nname`)
}
