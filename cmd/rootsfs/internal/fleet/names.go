package fleet

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Names has the names of one fleet on its server. Every subject begins with the fleet's ID.
type Names struct {
	ID string // NAME-RANDOM; the owners' name for the fleet is in front
}

// nameSyntax is the syntax of the names of fleets and machines. A name has no dot, because dots
// separate the tokens of a subject.
var (
	nameSyntax   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)
	idSyntax     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?-[a-z2-7]{12}$`)
	inviteSyntax = regexp.MustCompile(`^[A-Z2-7]{26}$`)
)

// allMachines is the recipient of orders for all machines. No machine has this name.
const allMachines = "all"

// CheckName returns an error unless a fleet or machine may have this name. The error begins with what,
// such as "a machine".
func CheckName(what, name string) error {
	if nameSyntax.MatchString(name) && name != allMachines {
		return nil
	}
	return &names.Error{Kind: names.Invalid, Err: fmt.Errorf("%s cannot be called %s: write up to 32 of a to z, 0 to 9 and -, but not %q", what, names.Quote(name), allMachines)}
}

// newNames makes the names of a new fleet.
func newNames(name string) Names {
	return Names{ID: name + "-" + strings.ToLower(rand.Text()[:12])}
}

// Name returns the owners' name for the fleet.
func (n Names) Name() string { return n.ID[:max(0, strings.LastIndexByte(n.ID, '-'))] }

// newInviteID returns the ID of a new invite, which no machine can be called.
func newInviteID() string { return rand.Text() }

// Subjects on which a machine publishes. The first token after the fleet's is "m", the second the
// machine's name.

func (n Names) machine(machine, what string) string { return n.ID + ".m." + machine + "." + what }

// lease is where a machine asks for its lease.
func (n Names) lease(machine string) string { return n.machine(machine, "lease") }

// ack is where a machine acknowledges an order that it has carried out.
func (n Names) ack(machine string) string { return n.machine(machine, "ack") }

// renew is where a machine asks for a new connection credential.
func (n Names) renew(machine string) string { return n.machine(machine, "renew") }

// records is where a machine sends its audit records to one keeper. The argument keeper is
// the key of that keeper.
func (n Names) records(machine, keeper string) string { return n.machine(machine, recordsTo(keeper)) }

func recordsTo(keeper string) string { return "audit." + keyID(keeper) }

// leave is where a machine announces that it leaves the fleet.
func (n Names) leave(machine string) string { return n.machine(machine, "leave") }

// ofMachines returns the pattern that matches every machine's subject for what, such as "lease".
func (n Names) ofMachines(what string) string { return n.machine("*", what) }

// machineOf returns the machine that a subject of ofMachines belongs to; "": it is another
// subject.
func (n Names) machineOf(subject string) string {
	rest, ok := strings.CutPrefix(subject, n.ID+".m.")
	machine, _, more := strings.Cut(rest, ".")
	if !ok || !more || CheckName("a machine", machine) != nil {
		return ""
	}
	return machine
}

// Subjects on which owners and keepers publish to machines.

// ordersForAll is where the orders for all machines are pushed.
func (n Names) ordersForAll() string { return n.orders(allMachines) }

// orders is where the orders for one machine are pushed.
func (n Names) orders(machine string) string { return n.ID + ".o." + machine }

// Do is where a machine hears its owners' commands.
func (n Names) Do(machine string) string { return n.ID + ".do." + machine }

// Status is where owners ask all machines for their status.
func (n Names) Status() string { return n.ID + ".q.all" }

// Subjects on which owners publish to keepers.

func (n Names) keeper(what string) string { return n.ID + ".k." + what }

// confirm is where owners have keepers confirm an order.
func (n Names) confirm() string { return n.keeper("confirm") }

func (n Names) invites() string  { return n.keeper("invite") }
func (n Names) machines() string { return n.keeper("machines") }
func (n Names) removals() string { return n.keeper("remove") }

// Subjects on which owners ask every keeper which machines it has records of, and one keeper for a list
// of files and for the contents of a file.
func (n Names) recordMachines() string           { return n.keeper("records.machines") }
func (n Names) recordFiles(keeper string) string { return n.keeper("records.files." + keyID(keeper)) }
func (n Names) recordFile(keeper string) string  { return n.keeper("records.file." + keyID(keeper)) }

// join is where the bearer of an invite asks to be enrolled.
func (n Names) join(invite string) string { return n.ID + ".join." + invite }

// inviteOf returns the invite that a subject of join belongs to; "": it is another subject.
func (n Names) inviteOf(subject string) string {
	id, ok := strings.CutPrefix(subject, n.ID+".join.")
	if !ok || !inviteSyntax.MatchString(id) {
		return ""
	}
	return id
}

// inbox is the beginning of the subjects at which a party hears the answers to its requests.
func inbox(party string) string { return "_INBOX_" + party }
